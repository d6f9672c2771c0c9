"""Ratings of a population by its last fit. All readers of ratings use this module.

Intervals are 95%; on each scale ``bot:random`` is at 0. The champion's rating is reduced by the
fit's optimism, so that all readers show the same number.

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
    """Rating, or difference of two ratings, with its 95% interval, in Elo.

    Attributes:
        rating: Rating or difference.
        low: Lower end of the interval.
        high: Upper end of the interval; infinite where results give no upper bound.
    """

    rating: float
    low: float
    high: float


class Ratings:
    """Ratings of a population, by entrant. Immutable.

    Attributes:
        row: Last fit; None before the first.
        spread: Spread in Elo, in the order of the row's entrants (see
            `populations.ratings.bradley_terry`); None where unknown, because the journal does not
            store it. float64 [N, K].
        centre: Mean of the newest weights' rows in the spread: the uncertainty common to all
            policies, about their distance from the anchor, which cannot change their order.
            float64 [K].
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
        # Subtracting c leaves out the part common to all policies: |S_i - c|.
        own = self.spread[i] - self.centre
        return math.sqrt(float(own @ own))

    def interval(self, entrant: str | None) -> Interval | None:
        """Return a rating with its 95% interval; None if unrated."""
        i = self.index(entrant)
        if i is None or self.row is None:
            return None
        # The common part is included, because the interval is about the distance from the anchor.
        off = self.row.anchor_errors[i] if self.row.anchor_errors else 0.0
        half = Z95 * math.hypot(self.row.deviations[i], off)
        # The champion was chosen by the same matches that rate it, so its rating is biased upwards.
        rating = self.row.ratings[i]
        if entrant == self.row.champion:
            rating -= self.row.optimism
        high = math.inf if entrant in self._open else rating + half
        return Interval(rating, rating - half, high)

    def ranks(self, entrant: str | None) -> tuple[int, int] | None:
        """Return the best and worst rank that an entrant may have; None if the fit has no ranks."""
        i = self.index(entrant)
        if i is None or self.row is None or not self.row.rank_lows:
            return None
        return self.row.rank_lows[i], self.row.rank_highs[i]

    def low(self, entrant: str | None) -> float | None:
        """Return the lower bound by which players are compared, in Elo; None if unrated.

        It leaves out the error of results against the anchor, which does not affect comparisons.
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
        # Var(i - j) = |S_i - S_j|^2, in which errors common to both cancel.
        gap = self.spread[i] - self.spread[j]
        return mean, math.sqrt(float(gap @ gap))


def interval_fields(found: Interval | None) -> dict[str, float | None]:
    """Return a rating with its interval as fields of a view's document.

    An unrated player has None in the three numbers. Where ``open`` is true, results give no upper
    bound and only ``rating_high`` is None.
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
    # The sort is stable, so that a resume has the same order of equal entrants.
    order = np.argsort(-lows, kind="stable")
    return [row.entrants[i] for i in order.tolist()]
