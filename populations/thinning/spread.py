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

import heapq
import math
from itertools import pairwise

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import ThinningRequest
from populations.rule_kinds import RuleKind, itself

ELO_PER_SHARE = 400.0
"""Elo that weigh as much as a policy's whole history: a rating 400 Elo off is another opponent."""

LEAST_ELO = 20.0
"""Elo by which a ghost is taken to be off the line of its neighbours at least, so that equal ones
are spread by age."""


class Spread(Model):
    """Rule of those that tell least."""

    newest_ratio: float = Field(0.25, ge=0.0, le=1.0)
    """Share of the ghosts that stay for being the newest."""

    strongest_ratio: float = Field(0.125, ge=0.0, le=1.0)
    """Share of the ghosts that stay for being rated best, by the lower ends of their intervals."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return those that tell least, in order of going."""
        stays = request.is_needed.copy()
        num = len(stays)
        num_staying = num - request.num_to_go
        stays[num - int(self.newest_ratio * num_staying) :] = True
        # -inf where unrated: they are the last.
        best = np.argsort(-request.lows, kind="stable")[: int(self.strongest_ratio * num_staying)]
        stays[best[np.isfinite(request.lows[best])]] = True
        neighbours = _Neighbours(request)
        # The smallest area is first. One that has changed since has another entry, and this one is
        # skipped.
        areas = {place: neighbours.area(place) for place in np.flatnonzero(~stays).tolist()}
        waiting = [(area, place) for place, area in areas.items()]
        heapq.heapify(waiting)
        going: list[int] = []
        # All others are needed once it is empty, as they are among the newest or among the
        # strongest.
        while waiting and len(going) < request.num_to_go:
            area, place = heapq.heappop(waiting)
            if areas.get(place) != area:
                continue
            going.append(place)
            del areas[place]
            for neighbour in neighbours.remove(place):
                if neighbour in areas:
                    areas[neighbour] = neighbours.area(neighbour)
                    heapq.heappush(waiting, (areas[neighbour], neighbour))
        return tuple(going)


class _Neighbours:
    """Ghosts that are left before and after each one of its policy, and the triangle with them."""

    def __init__(self, request: ThinningRequest) -> None:
        num = len(request.policies)
        self._ages = np.zeros(num)
        # -1: an end, which has no triangle: history begins and ends with it.
        self._before, self._after = [-1] * num, [-1] * num
        self._ratings: list[float] = request.ratings.tolist()
        for policy in np.unique(request.policies):
            places = np.flatnonzero(request.policies == policy)
            steps: FloatArray = request.agent_steps[places].astype(np.float64)
            # Share of the policy's history.
            self._ages[places] = (steps - steps[0]) / max(float(steps[-1] - steps[0]), 1.0)
            for before, after in pairwise(places.tolist()):
                self._after[before], self._before[after] = after, before

    def remove(self, place: int) -> tuple[int, int]:
        """Take a ghost out, and return its neighbours; -1: none."""
        before, after = self._before[place], self._after[place]
        if after >= 0:
            self._before[after] = before
        if before >= 0:
            self._after[before] = after
        return before, after

    def area(self, place: int) -> float:
        """Return the triangle of a ghost and its neighbours, in shares of history x 400 Elo."""
        before, after = self._before[place], self._after[place]
        if before < 0 or after < 0:
            return math.inf
        begin, age, end = (float(self._ages[one]) for one in (before, place, after))
        low, own, high = (self._ratings[one] for one in (before, place, after))
        off = LEAST_ELO
        if end > begin and not math.isnan(low + own + high):
            share = (age - begin) / (end - begin)
            off += abs(own - (low + share * (high - low)))
        # Half of width times height.
        return 0.5 * (end - begin) * off / ELO_PER_SHARE


KIND = RuleKind(
    name="spread",
    settings=Spread,
    make=itself,
)
