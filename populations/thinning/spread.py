"""Thinning that retains ghosts spread evenly over history and strength.

The newest and the strongest ghosts stay. Of the others, ghosts are removed one at a time: always
the one whose removal changes its policy's curve of rating over age least, measured by the area of
the triangle with its neighbours on the curve. So gaps grow wide only where the rating follows a
line. An unrated ghost is taken to lie on the line between its neighbours, so only age decides.

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
"""Distance in Elo that counts as much as a policy's whole history: the opponent is different."""

LEAST_ELO = 20.0
"""Distance in Elo that is added to a ghost's distance from the line of its neighbours, so that
ghosts on the line are spread by age."""


class Spread(Model):
    """Rule that removes the ghosts whose removal changes their policy's curve least."""

    newest_ratio: float = Field(0.25, ge=0.0, le=1.0)
    """Share of the remaining ghosts that are retained because they are the newest."""

    strongest_ratio: float = Field(0.125, ge=0.0, le=1.0)
    """Share of the remaining ghosts that are retained for the best lower ends of their ratings."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return the places of the ghosts to remove, in order of removal."""
        stays = request.is_needed.copy()
        num = len(stays)
        num_staying = num - request.num_to_go
        stays[num - int(self.newest_ratio * num_staying) :] = True
        # Unrated ghosts have -inf, so they come last.
        best = np.argsort(-request.lows, kind="stable")[: int(self.strongest_ratio * num_staying)]
        stays[best[np.isfinite(request.lows[best])]] = True
        neighbours = _Neighbours(request)
        # The heap has the smallest area first. When an area changes, a new entry is added, and the
        # outdated one is skipped below.
        areas = {place: neighbours.area(place) for place in np.flatnonzero(~stays).tolist()}
        waiting = [(area, place) for place, area in areas.items()]
        heapq.heapify(waiting)
        going: list[int] = []
        # If the heap becomes empty, all remaining ghosts are needed, newest or strongest.
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
    """Linked lists of each policy's remaining ghosts in order of age, and triangle areas."""

    def __init__(self, request: ThinningRequest) -> None:
        num = len(request.policies)
        self._ages = np.zeros(num)
        # -1 means no neighbour. The first and the last ghost of a policy have no triangle, so they
        # are never removed.
        self._before, self._after = [-1] * num, [-1] * num
        self._ratings: list[float] = request.ratings.tolist()
        for policy in np.unique(request.policies):
            places = np.flatnonzero(request.policies == policy)
            steps: FloatArray = request.agent_steps[places].astype(np.float64)
            # Ages are shares of the policy's history, from 0 to 1.
            self._ages[places] = (steps - steps[0]) / max(float(steps[-1] - steps[0]), 1.0)
            for before, after in pairwise(places.tolist()):
                self._after[before], self._before[after] = after, before

    def remove(self, place: int) -> tuple[int, int]:
        """Remove a ghost from its list, and return its two neighbours; -1: none."""
        before, after = self._before[place], self._after[place]
        if after >= 0:
            self._before[after] = before
        if before >= 0:
            self._after[before] = after
        return before, after

    def area(self, place: int) -> float:
        """Return the area of the triangle of a ghost and its neighbours, infinite at an end.

        The unit is a policy's whole history times 400 Elo.
        """
        before, after = self._before[place], self._after[place]
        if before < 0 or after < 0:
            return math.inf
        begin, age, end = (float(self._ages[one]) for one in (before, place, after))
        low, own, high = (self._ratings[one] for one in (before, place, after))
        off = LEAST_ELO
        if end > begin and not math.isnan(low + own + high):
            share = (age - begin) / (end - begin)
            off += abs(own - (low + share * (high - low)))
        # The area is half of width times height.
        return 0.5 * (end - begin) * off / ELO_PER_SHARE


KIND = RuleKind(
    name="spread",
    settings=Spread,
    make=itself,
)
