"""Ratings of a population by its last fit: the one place that they are read from.

Intervals are 95%; on each scale ``bot:random`` is at 0. The champion's rating is less the fit's
optimism, wherever it is shown.

Tests: `tests/populations/league/test_standings.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from populations.ratings.model import Z95
from populations.records.rows import RatingsRow

FloatArray = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Rating, or a difference of two, with its 95% interval, in Elo.

    Attributes:
        rating: Rating.
        low: Lower end of the interval.
        high: Upper end; infinite where results have none.
    """

    rating: float
    low: float
    high: float


class Ratings:
    """Ratings of a population, by entrant. Immutable.

    Attributes:
        row: Last fit; None before the first.
        spread: Spread in Elo, in the order of the row's entrants (see
            `populations.ratings.bradley_terry`); None where unknown, as in a journal. float64 [N,
            K].
        centre: Mean of the newest weights' rows in the spread: what is uncertain about all policies
            alike, how far away the anchor is, and makes no order among them. float64 [K].
        best_first: All entrants, those with the best lower bounds (`low`) first.
    """

    __slots__ = ("_open", "_positions", "best_first", "centre", "row", "spread")

    def __init__(
        self,
        row: RatingsRow | None,
        spread: FloatArray | None = None,
        centre: FloatArray | float = 0.0,
    ) -> None:
        self.row = row
        self.spread = spread
        self.centre = centre
        entrants = row.entrants if row is not None else ()
        self._positions: dict[str, int] = {entrant: i for i, entrant in enumerate(entrants)}
        self._open: frozenset[str] = frozenset(() if row is None else row.open)
        self.best_first: list[str] = [] if row is None else _best_first(row)

    def fits(self, row: RatingsRow) -> bool:
        """Return whether a row is of the same fit."""
        return self.row is not None and self.row.entrants is row.entrants

    def index(self, entrant: str | None) -> int | None:
        """Return the index of an entrant, if it is rated."""
        return None if entrant is None else self._positions.get(entrant)

    def rating(self, entrant: str | None) -> float | None:
        """Return an entrant's rating in Elo; None if unrated."""
        found = self.interval(entrant)
        return None if found is None else found[0]

    def deviation(self, entrant: str | None) -> float:
        """Return a rating's deviation without the part common to all policies, in Elo; 0 if
        unrated.

        Without a spread the common part is included.
        """
        i = self.index(entrant)
        if i is None or self.row is None:
            return 0.0
        if self.spread is None:
            return self.row.deviations[i]
        # The part that is common to all is left out: |S_i - c|.
        own = self.spread[i] - self.centre
        return math.sqrt(float(own @ own))

    def interval(self, entrant: str | None) -> Interval | None:
        """Return a rating with its 95% interval; None if unrated."""
        i = self.index(entrant)
        if i is None or self.row is None:
            return None
        # The common part counts, because the interval is about the distance from the anchor.
        off = self.row.anchor_errors[i] if self.row.anchor_errors else 0.0
        half = Z95 * math.hypot(self.row.deviations[i], off)
        # The matches that chose the champion rate it, too.
        rating = self.row.ratings[i]
        if entrant == self.row.champion:
            rating -= self.row.optimism
        high = math.inf if entrant in self._open else rating + half
        return Interval(rating, rating - half, high)

    def ranks(self, entrant: str | None) -> tuple[int, int] | None:
        """Return the best and worst rank that an entrant may have; None if the fit tells none."""
        i = self.index(entrant)
        if i is None or self.row is None or not self.row.rank_lows:
            return None
        return self.row.rank_lows[i], self.row.rank_highs[i]

    def low(self, entrant: str | None) -> float | None:
        """Return the lower bound by which players are compared, in Elo; None if unrated.

        Without what results against the anchor are off by: that says nothing about others.
        """
        i = self.index(entrant)
        if i is None or self.row is None:
            return None
        return self.row.ratings[i] - Z95 * self.row.deviations[i]

    def difference(self, first: str, second: str) -> tuple[float, float] | None:
        """Return mean and deviation of how much better ``first`` is, in Elo; None if unrated.

        Without a spread errors count as independent, which overstates the deviation of nearly all
        differences.
        """
        i, j = self.index(first), self.index(second)
        if i is None or j is None or self.row is None:
            return None
        mean = self.row.ratings[i] - self.row.ratings[j]
        if i == j:
            return mean, 0.0
        if self.spread is None:
            return mean, math.hypot(self.row.deviations[i], self.row.deviations[j])
        # Var(i - j) = |S_i - S_j|^2; what both share cancels.
        gap = self.spread[i] - self.spread[j]
        return mean, math.sqrt(float(gap @ gap))


def interval_fields(found: Interval | None) -> dict[str, float | None]:
    """Return a rating with its interval as documents have them.

    All three None: unrated. ``open``: the interval is open above, as the results have no upper
    bound; only ``rating_high`` is None then.
    """
    rating, low, high = found or (None, None, None)
    is_open = high == math.inf
    return {
        "rating": rating,
        "rating_low": low,
        "rating_high": None if is_open else high,
        "open": is_open,
    }


def _best_first(row: RatingsRow) -> list[str]:
    lows = np.array(row.ratings) - Z95 * np.array(row.deviations)
    # Stable, so that equal ones have an order that a resume has, too.
    order = np.argsort(-lows, kind="stable")
    return [row.entrants[i] for i in order.tolist()]
