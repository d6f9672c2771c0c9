"""Champions: since when, by how much, and whether they are surely better than untrained players.

Somebody is the champion in every rated league, also where nobody has learned anything; and a rating
rests on all matches, at every distance, so that the score against one opponent does not follow from
it beyond the scatter of pairs. Whoever shows how strong a champion is shows both.

Tests: `tests/populations/views/test_champions.py`, `tests/populations/views/test_unproven.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from arena.matches.pair_scores import wilson
from arena.types import RANDOM_BOT, Digest, Entrant, PlayerId, ghost_id
from populations.controller.monitoring.champions import CHAMPION
from populations.league.lineage import lineage
from populations.league.ratings import Interval, Ratings
from populations.league.standings import Standing
from populations.ratings.model import Z95
from populations.records.rows import Document, Json
from populations.views.parts import picked
from populations.views.questions.inspection import CheckpointFit
from populations.views.questions.results import seen_from_both

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

LEAD = ("lead", "lead_low", "lead_high")
"""Keys of a difference of ratings in documents."""

EQUAL = 1e-9
"""Share of the mean square below which a variance of returns is rounding."""


def champions_of(run: Inspection, population: str | None) -> list[Document]:
    """Return since when and until when each champion has led its population, oldest first."""
    spans: list[Document] = []
    current: dict[str, Document] = {}
    for event in run.reader.events(kinds=(CHAMPION,)):
        name = str(event.data["population"])
        if name in current:
            current[name]["until"] = event.time
        led = {"population": name, "player": event.subject, "since": event.time}
        current[name] = {**led, "until": None}
        spans.append(current[name])
    return [span for span in spans if population in (None, span["population"])]


def lead(
    population: str, best: Standing, lines: Iterable[Standing], fit: CheckpointFit
) -> Document:
    """Return by how much a champion leads the next player of the standings with other weights."""
    others = [
        line
        for line in lines
        if line.kind != "bot"
        and line.state == "active"
        and line.rating is not None
        and line.weights not in (None, best.weights)
    ]
    # The standings are sorted by rating.
    second = others[0] if others else None
    gap = None
    if second is not None:
        gap = fit.difference(
            (population, Entrant(best.weights or "")), (population, Entrant(second.weights or ""))
        )
    return {
        "next": None if second is None else second.player,
        **dict(zip(LEAD, gap or (None, None, None), strict=True)),
    }


def opponents(
    cells: Iterable[Mapping[str, Json]], *, population: str, player: str
) -> list[Document]:
    """Return a player's results by opponent, the worst score first."""
    rows: list[tuple[float, int, Document]] = []
    for cell in cells:
        score, matches = cell["score"], cell["matches"]
        is_own = (cell["population"], cell["player"]) == (population, player)
        # A player has half of the points against itself.
        is_itself = (cell["opponent_population"], cell["opponent"]) == (population, player)
        if not is_own or is_itself or not isinstance(score, float) or not isinstance(matches, int):
            continue
        low, high = wilson(score, matches)
        keys = ("opponent_population", "opponent", "matches", "wins", "draws", "losses", "score")
        row: Document = {key: cell[key] for key in keys}
        row |= {"score_low": low, "score_high": high, "mean_return": cell["mean_return"]}
        rows.append((score, -matches, row))
    # Of equal scores the one from more matches comes first.
    return [row for _, _, row in sorted(rows, key=lambda one: one[:2])]


def line_of(run: Inspection, best: Standing) -> list[Document]:
    """Return the generations behind a champion's weights, the copies it came through included."""
    origin = run.league.checkpoints.get(Digest(best.weights or ""))
    generations = run.history().generations
    if origin is None:
        return []
    entrant = origin.trainee
    if entrant not in generations:
        return []
    return [
        {
            **picked(generation, "policy", "generation", "cause"),
            "begin": begin,
            "agent_steps": agent_steps,
        }
        for generation, begin, agent_steps in lineage(
            generations, entrant, agent_steps=origin.agent_steps
        )
    ]


def anchor_score(run: Inspection, population: str, player: Standing) -> Document | None:
    """Return what a player has won against ``bot:random`` in evaluation; None: they never met.

    Returns:
        ``player``; ``matches``; ``score`` per match, a draw half; ``score_low`` and ``score_high``,
        the ends of its 95% interval.
    """
    weights = player.weights or ""
    # Each of several other populations may have met it.
    own = [
        counts
        for row in run.reader.pairs(kind="evaluate", between=(weights, RANDOM_BOT))
        for seen, _, _, counts, _ in seen_from_both(row, run.league.seats)
        if seen == (population, weights)
    ]
    matches = sum(one.matches for one in own)
    if not matches:
        return None
    score = sum(one.points for one in own) / matches
    low, high = wilson(score, matches)
    return {
        "player": player.player,
        "matches": round(matches),
        "score": score,
        "score_low": low,
        "score_high": high,
    }


class _Lead(NamedTuple):
    """Lead of a champion over a player that nothing was trained of."""

    over: str
    elo: Interval


def unproven_champions(run: Inspection, population: str | None = None) -> Document:
    """Return what `unproven` says of each population's champion, where it says something."""
    return {
        name: said
        for name, best in run.champions(population).items()
        if (said := unproven(run, name, best)) is not None
    }


def unproven(run: Inspection, population: str, best: Standing) -> Document | None:
    """Say that a champion is not surely better than untrained; None: it is.

    It is if its lead over the weights that its own training began with has an interval above 0,
    one of 95% for all players at once. Where these are not rated, the strongest untrained player of
    the population takes their place, and where none is, ``bot:random``.

    Returns:
        ``what``, a sentence; ``reasons``, the two most likely ones, the likelier first; ``lead``,
        ``lead_low`` and ``lead_high``, Elo over the player ``over``: null for weights of 0 agent
        steps.
    """
    lead = None
    if best.evaluated_agent_steps != 0:
        lead = _lead(run, population, best)
        if lead is not None and lead.elo.low > 0.0:
            return None
    return {
        "what": _what(run, population, best, lead),
        "reasons": [*_reasons(run, population, best)],
        "over": None if lead is None else lead.over,
        **dict(zip(LEAD, (None, None, None) if lead is None else lead.elo, strict=True)),
    }


def _lead(run: Inspection, population: str, best: Standing) -> _Lead | None:
    weights, row = Digest(best.weights or ""), run.tables.ratings.get(population)
    untrained = {
        one.weights_digest: ghost_id(one.policy, agent_steps=0)
        for one in run.tables.checkpoints.values()
        if one.agent_steps == 0 and run.tables.policies[one.policy].population == population
    }
    own = [one for one in run.league.ancestors(weights) if one in untrained]
    last, z = Ratings(row), _simultaneous(1 if row is None else len(row.entrants))

    def by_last_fit(other: Digest) -> Interval | None:
        found = last.difference(weights, other)
        return None if found is None else _interval(found[0], z * found[1])

    found = _over(untrained, own, difference=by_last_fit) or _over_random(best, z)
    if found is None or found.elo.low > 0.0:
        return found

    # A journal has no spread of the last fit, so it overstates the error of a difference: what is
    # clear by it is clear, and only what is not is worth a fit of its own.
    def by_one_fit(other: Digest) -> Interval | None:
        gap = run.rated.difference((population, Entrant(weights)), (population, Entrant(other)))
        return None if gap is None else _interval(gap.rating, z * (gap.high - gap.rating) / Z95)

    return _over(untrained, own, difference=by_one_fit) or found


def _simultaneous(num_players: int) -> float:
    """Return the z with which all of so many 95% intervals hold at once (Bonferroni).

    Any of the players could have been the champion, and of many that have learned nothing the best
    is lucky.
    """
    return NormalDist().inv_cdf(1.0 - 0.025 / num_players)


def _interval(elo: float, half: float) -> Interval:
    return Interval(elo, elo - half, elo + half)


def _over(
    untrained: Mapping[Digest, PlayerId],
    own: Sequence[Digest],
    *,
    difference: Callable[[Digest], Interval | None],
) -> _Lead | None:
    """Return the lead over untrained weights by one fit; None where it has none of these.

    Args:
        untrained: Names of the weights of 0 agent steps.
        own: Those that the champion's come from, the nearest first.
        difference: Function that returns the champion's lead over others, None if unrated.
    """
    leads = {one: gap for one in untrained if (gap := difference(one)) is not None}
    mine = [one for one in own if one in leads]
    first = mine[-1] if mine else min(leads, key=lambda one: leads[one].rating, default=None)
    return None if first is None else _Lead(over=untrained[first], elo=leads[first])


def _over_random(best: Standing, z: float) -> _Lead | None:
    if best.rating is None or best.rating_low is None:
        return None
    half = z * (best.rating - best.rating_low) / Z95
    return _Lead(over=RANDOM_BOT, elo=_interval(best.rating, half))


def _what(run: Inspection, population: str, best: Standing, lead: _Lead | None) -> str:
    names = run.run_file.config.populations
    of = f" of {population}" if len(names) > 1 else ""
    began = run.run_file.init_from
    start = "untrained" if began is None else f"the weights of {began} that training began with"
    told = f"nobody{of} is surely better than {start}: {best.player} "
    if lead is None:
        return told + f"has {best.evaluated_agent_steps or 0} agent steps"
    return told + (
        f"leads {lead.over} by {lead.elo.rating:z.0f} Elo, 95% {lead.elo.low:z.0f}.."
        f"{lead.elo.high:z.0f}"
    )


def _reasons(run: Inspection, population: str, best: Standing) -> tuple[str, str]:
    config = run.run_file.config
    settings = config.pbt_of(population)
    trained = max(
        (row.agent_steps for row in run.tables.policies.values() if row.population == population),
        default=0,
    )
    little = (
        f"too little training so far ({trained:,} agent steps of the policy that has most, "
        f"{best.matches:,} evaluation matches of {best.player})"
    )
    silence = _silence(run, population)
    cannot = (
        f"an environment or rewards that cannot be learned from as configured{silence}; "
        f"arena envs check {shlex.quote(config.environment.id)} tries them"
    )
    # PBT waits as long before it compares anybody: no policy has shown by then what it can learn.
    is_early = trained < settings.warm_up_agent_steps
    return (little, cannot) if is_early and not silence else (cannot, little)


def _silence(run: Inspection, population: str) -> str:
    """Return what in the results has nothing to learn from; empty: nothing has."""
    records = [row for (name, _), row in run.league.tables.records.items() if name == population]
    matches = sum(row.matches for row in records)
    if not matches:
        return ""
    mean = sum(row.return_sum for row in records) / matches
    square = sum(row.return_sum_of_squares for row in records) / matches
    if square - mean * mean <= EQUAL * square:
        return f" (every return of {matches:,} was {mean:g})"
    draws = sum(row.draws for row in records)
    if draws and not any(row.wins or row.losses for row in records):
        return f" (all of {draws:,} results were draws)"
    return ""
