"""Openings: which first decisions evaluation matches begin with, over training, and how they score.

A match counts at the agent steps of the weights that played it, so a ghost's match of today is one
of its time. Windows are equal ranges of agent steps. Matches of bots, of players from outside and
of weights that are gone are left out.

Tests: `tests/populations/views/test_openings.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from arena.environment_spec import AgentSpec
from arena.matches.openings import choices_of, entries, radices, seat_points
from arena.matches.pair_scores import mean_score, wilson
from arena.spaces import ActionLayout
from arena.types import Digest, PolicyId
from populations.league.league import League
from populations.records.rows import TallyRow
from populations.views.questions.inspection import Document

MAX_WINDOWS = 40

MIN_CORRELATION = 0.3
"""Least correlation of mixes a period apart."""

SURE = 3.0
"""Standard deviations by which the correlation of a period exceeds that of chance."""

Mix = Mapping[int | None, float]
"""Share of each action; None: of all others."""


@dataclass(slots=True)
class Window:
    """Matches of one seat in a range of agent steps.

    Attributes:
        matches: Number of matches.
        points: Points of the seat in all of them.
        actions: Matches and points of each first action that tallies keep apart.
        is_compared: Whether matches have a score.
    """

    matches: int = 0
    points: float = 0.0
    actions: dict[int, tuple[int, float]] = field(default_factory=dict)
    is_compared: bool = True

    @property
    def rest(self) -> int:
        """Number of matches with other first actions."""
        return self.matches - sum(count for count, _ in self.actions.values())

    def mix(self) -> Mix:
        """Return the share of each action."""
        shares: dict[int | None, float] = {
            action: count / self.matches for action, (count, _) in self.actions.items()
        }
        return {**shares, None: self.rest / self.matches} if self.rest else shares


Windows = dict[int, Window]
"""Windows with matches, by number."""

Played = dict[tuple[int, PolicyId | None], Windows]
"""Windows by seat and policy; None: all policies."""


def windows_of(tallies: Iterable[TallyRow], *, league: League, width: Mapping[str, int]) -> Played:
    """Add up the first decisions of evaluation matches.

    Args:
        tallies: Tallies of the run.
        league: League of the run.
        width: Agent steps of a window, by population.
    """
    played: Played = {}
    for row in tallies:
        if row.kind != "evaluate":
            continue
        for index, seat in enumerate(row.tally.openings):
            origin = league.checkpoints.get(Digest(row.tally.entrants[index]))
            # A seat without actions has no openings that can be counted.
            if origin is None or not seat.actions:
                continue
            number = origin.agent_steps // width[league.seats[index].population]
            won = seat_points(row.tally, index)
            for policy in (None, origin.policy):
                window = played.setdefault((index, policy), {}).setdefault(number, Window())
                window.matches += row.tally.matches
                window.points += won or 0.0
                window.is_compared = won is not None
                for action, count, gained in entries(seat):
                    before = window.actions.get(action, (0, 0.0))
                    window.actions[action] = (before[0] + count, before[1] + gained)
    return {key: dict(sorted(windows.items())) for key, windows in played.items()}


def window_width(agent_steps: int) -> int:
    """Return the agent steps of a window, where weights have up to so many."""
    return agent_steps // MAX_WINDOWS + 1


def rows_of(windows: Windows, *, width: int, label: Callable[[int], str]) -> list[Document]:
    """Return one object per window and action, the most frequent action of a window first."""
    return [
        {
            "window": number,
            "agent_steps_from": number * width,
            "agent_steps_to": (number + 1) * width - 1,
            "matches": window.matches,
            **line,
        }
        for number, window in windows.items()
        for line in _lines(window, label)
    ]


def _lines(window: Window, label: Callable[[int], str]) -> Iterable[Document]:
    by_count = sorted(window.actions.items(), key=lambda one: (-one[1][0], one[0]))
    for action, (count, won) in by_count:
        yield _line(window, action, label(action), count=count, won=won)
    if window.rest:
        won = window.points - math.fsum(won for _, won in window.actions.values())
        yield _line(window, None, "others", count=window.rest, won=won)


def _line(window: Window, action: int | None, label: str, *, count: int, won: float) -> Document:
    share_low, share_high = wilson(count / window.matches, window.matches)
    score = mean_score(won, count) if window.is_compared else None
    low, high = (None, None) if score is None else wilson(score, count)
    return {
        "action": action,
        "label": label,
        "count": count,
        "share": count / window.matches,
        "share_low": share_low,
        "share_high": share_high,
        "score": score,
        "score_low": low,
        "score_high": high,
    }


def distance(one: Mix, other: Mix) -> float:
    """Return the total variation distance of two mixes: 0 for equal, 1 for disjoint ones."""
    keys = dict.fromkeys((*one, *other))
    return math.fsum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in keys) / 2.0


def correlations(mixes: Mapping[int, Mix]) -> list[tuple[float, int]]:
    """Return how alike mixes are that are 1, 2, ... windows apart, and the number of such pairs.

    1: equal; 0: no more than any two; below 0: less. The greatest distance is half of all windows;
    empty where the mix does not change.

    Args:
        mixes: Mix of each window, in order.
    """
    if len(mixes) < 2:
        return []
    keys = dict.fromkeys(key for mix in mixes.values() for key in mix)
    mean = {
        key: math.fsum(mix.get(key, 0.0) for mix in mixes.values()) / len(mixes) for key in keys
    }
    off = {number: [mix.get(key, 0.0) - mean[key] for key in keys] for number, mix in mixes.items()}
    variance = math.fsum(x * x for row in off.values() for x in row) / len(off)
    if variance < 1e-12:
        return []
    found = []
    for lag in range(1, (max(mixes) - min(mixes) + 1) // 2 + 1):
        pairs = [(off[at], off[at + lag]) for at in off if at + lag in off]
        products = [x * y for one, other in pairs for x, y in zip(one, other, strict=True)]
        alike = math.fsum(products) / len(pairs) / variance if pairs else 0.0
        found.append((alike, len(pairs)))
    return found


def period(mixes: Mapping[int, Mix]) -> tuple[int | None, float | None]:
    """Return after how many windows mixes return, and their correlation; None: they do not.

    Mixes return where they first grow unlike, and are alike again later, by more than chance.
    """
    found = correlations(mixes)
    alike = [correlation for correlation, _ in found]
    for at in range(1, len(found)):
        peak, num_pairs = found[at]
        following = alike[at + 1] if at + 1 < len(found) else -1.0
        is_sure = peak >= max(MIN_CORRELATION, SURE / math.sqrt(max(num_pairs, 1)))
        if is_sure and min(alike[:at]) < 0.0 and alike[at - 1] < peak >= following:
            return at + 1, peak
    return None, None


def summary_of(windows: Windows, *, width: int, label: Callable[[int], str]) -> Document:
    """Sum up a seat: what is played now, since when, how the mix changed, whether it returns."""
    mixes = {number: window.mix() for number, window in windows.items()}
    numbers = list(mixes)
    favourites = {number: _favourite(windows[number]) for number in numbers}
    now = favourites[numbers[-1]]
    since = numbers[-1]
    for number in reversed(numbers):
        if favourites[number] != now:
            break
        since = number
    changes = [distance(mixes[one], mixes[other]) for one, other in pairwise(numbers)]
    lag, correlation = period(mixes)
    return {
        "windows": len(numbers),
        "window_agent_steps": width,
        "action": now,
        "label": label(now),
        "share": mixes[numbers[-1]][now],
        "since_window": since,
        "since_agent_steps": since * width,
        "favourites": 1
        + sum(favourites[one] != favourites[other] for one, other in pairwise(numbers)),
        "last_change": changes[-1] if changes else None,
        "mean_change": math.fsum(changes) / len(changes) if changes else None,
        "total_change": distance(mixes[numbers[0]], mixes[numbers[-1]]),
        "period_windows": lag,
        "period_agent_steps": None if lag is None else lag * width,
        "period_correlation": correlation,
    }


def _favourite(window: Window) -> int:
    return max(window.actions, key=lambda action: (window.actions[action][0], -action))


def label_of(spec: AgentSpec) -> Callable[[int], str]:
    """Return a function that names an agent's action by its index, in the environment's numbers."""
    layout = ActionLayout.from_json(spec.action, continuous="squashed")
    starts = [start for leaf in layout.leaves for start in leaf.starts]

    def label(action: int) -> str:
        choices = choices_of(action, layout.branches)
        own = [choice + start for choice, start in zip(choices, starts, strict=True)]
        return f"action {own[0]}" if len(own) == 1 else f"action ({', '.join(map(str, own))})"

    return label


def is_countable(spec: AgentSpec) -> bool:
    """Return whether an agent's actions have indices, so that its openings are counted."""
    layout = ActionLayout.from_json(spec.action, continuous="squashed")
    return radices(layout.branches, has_numbers=bool(layout.num_continuous)) is not None
