"""An even spread through history and strength stays, with the newest and the strongest.

Of the others, that one goes without which its policy's curve of rating over age changes least: the
area of the triangle with its neighbours on the curve. One at a time, so that a gap grows wide only
where nothing happened. An unrated ghost has no strength of its own: it lies on the line of its
neighbours, so it goes by age alone.

Source: Visvalingam and Whyatt, "Line generalisation by repeated elimination of points" (The
Cartographic Journal, 1993).

Shapes: N ghosts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import ThinningRequest
from populations.rule_kinds import RuleKind

ELO_PER_SHARE = 400.0
"""Elo that weigh as much as a policy's whole history: a rating 400 Elo off is another opponent."""

LEAST_ELO = 20.0
"""Elo by which a ghost is taken to be off the line of its neighbours at least, so that equal ones
are spread by age."""


class SpreadSettings(Model):
    """Settings of ``spread``, in the section ``ghosts``."""

    newest_ratio: float = Field(0.25, ge=0.0, le=1.0)
    """Share of the ghosts that stay for being the newest."""

    strongest_ratio: float = Field(0.125, ge=0.0, le=1.0)
    """Share of the ghosts that stay for being rated best, by the lower ends of their intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Rule of those that tell least.

    Attributes:
        newest_ratio: Share of the ghosts that stay for being the newest.
        strongest_ratio: Share that stays for being rated best.
    """

    newest_ratio: float
    strongest_ratio: float

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return those that tell least, in order of going."""
        stays = request.is_needed.copy()
        num = len(stays)
        num_staying = num - request.num_to_go
        stays[num - int(self.newest_ratio * num_staying) :] = True
        # -inf where unrated: they are the last.
        best = np.argsort(-request.lows, kind="stable")[: int(self.strongest_ratio * num_staying)]
        stays[best[np.isfinite(request.lows[best])]] = True
        lines = _lines(request)
        going: list[int] = []
        while len(going) < request.num_to_go:
            least = min(
                (
                    (_area(line, index), line.places[index], line)
                    for line in lines
                    for index in range(len(line.places))
                    if not stays[line.places[index]]
                ),
                key=lambda entry: entry[:2],
                default=None,
            )
            # All others are needed, among the newest or among the strongest.
            if least is None:
                break
            _, place, line = least
            going.append(place)
            line.remove(place)
        return tuple(going)


@dataclass(slots=True)
class _Line:
    """Ghosts of one policy that are left, oldest first.

    Attributes:
        places: Their places in the request.
        ages: Share of the policy's history, 0 to 1.
        ratings: Elo; NaN: unrated.
    """

    places: list[int]
    ages: list[float]
    ratings: list[float]

    def remove(self, place: int) -> None:
        """Take a ghost out."""
        index = self.places.index(place)
        del self.places[index], self.ages[index], self.ratings[index]


def _lines(request: ThinningRequest) -> list[_Line]:
    found = []
    for policy in np.unique(request.policies):
        places = np.flatnonzero(request.policies == policy)
        steps: FloatArray = request.agent_steps[places].astype(np.float64)
        ages = (steps - steps[0]) / max(float(steps[-1] - steps[0]), 1.0)
        found.append(_Line(places.tolist(), ages.tolist(), request.ratings[places].tolist()))
    return found


def _area(line: _Line, index: int) -> float:
    """Return the triangle of a ghost and its neighbours, in shares of history times 400 Elo."""
    # The ends have no triangle: history begins and ends with them.
    if not 0 < index < len(line.places) - 1:
        return math.inf
    before, here, after = index - 1, index, index + 1
    width = line.ages[after] - line.ages[before]
    low, own, high = (line.ratings[place] for place in (before, here, after))
    off = LEAST_ELO
    if width > 0.0 and not math.isnan(low + own + high):
        share = (line.ages[here] - line.ages[before]) / width
        off += abs(own - (low + share * (high - low)))
    # Half of width times height.
    return 0.5 * width * off / ELO_PER_SHARE


KIND = RuleKind(
    name="spread",
    settings=SpreadSettings,
    make=lambda settings: Spread(
        newest_ratio=settings.newest_ratio, strongest_ratio=settings.strongest_ratio
    ),
)
