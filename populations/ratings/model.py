"""Results of pairs that a rating model takes, and the ratings with uncertainty that it gives."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from arena.matches.pair_scores import Z95 as Z95
from populations.ratings.fitting.components import Components
from populations.ratings.fitting.posterior import FloatArray

E = TypeVar("E", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[E]):
    """Matches between two entrants in one pair of seats, seen from ``first``.

    Attributes:
        first: Entrant: any hashable name.
        second: Another entrant.
        seats: Indices of their seats, in this order; equal numbers if seats do not matter.
        wins: Wins of ``first``. A float where scores between 0 and 1 were counted in parts.
        draws: Matches with equal scores.
        losses: Losses of ``first``.
        score_sum: Sum of ``first``'s scores, where scores are margins. None: one for a win and half
            for a draw.
        square_sum: Sum of the squares of these scores; None where ``score_sum`` is.
    """

    first: E
    second: E
    seats: tuple[int, int]
    wins: float
    draws: float
    losses: float
    score_sum: float | None = None
    square_sum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[E]):
    """Ratings and their uncertainty.

    Attributes:
        entrants: All rated entrants, in an order that does not depend on that of the results.
        ratings: Ratings in Elo. float64 [N].
        spread: S, in Elo, with covariance S @ S.T (Laplace's approximation): a rating's standard
            deviation is the length of its row, that of a difference the length of the difference of
            two rows. Rows of anchors are 0. float64 [N, K].
        advantages: Elo that the first seat is worth, by pair of seats, lower first.
        components: Estimated components of variance.
        shrunk: Ratings in Elo under priors only as wide as the entrants lie apart: free of the luck
            of the best of many, but less exact about the distance of all from the anchor. float64
            [N].
        anchor_errors: Elo by which results against the anchors may be off each rating (root of the
            mean square), beside its deviation; 0 where the anchors' results are as ratings promise.
            float64 [N].
    """

    entrants: tuple[E, ...]
    ratings: FloatArray
    spread: FloatArray
    advantages: Mapping[tuple[int, int], float]
    components: Components
    shrunk: FloatArray
    anchor_errors: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the ratings, in Elo squared. float64 [N, N]: for few entrants."""
        return self.spread @ self.spread.T

    @property
    def deviations(self) -> FloatArray:
        """Standard deviations of the ratings, in Elo. float64 [N]."""
        return np.asarray(np.linalg.norm(self.spread, axis=1), dtype=np.float64)

    def index(self, entrant: E) -> int:
        """Return the position of an entrant.

        Raises:
            ValueError: If it was not rated.
        """
        return self.entrants.index(entrant)

    def rating(self, entrant: E) -> float:
        """Return the rating of an entrant, in Elo."""
        return float(self.ratings[self.index(entrant)])

    def deviation(self, entrant: E) -> float:
        """Return the standard deviation of a rating, in Elo."""
        return float(np.linalg.norm(self.spread[self.index(entrant)]))

    def interval(self, entrant: E) -> tuple[float, float]:
        """Return the ends of the 95% interval of a rating, in Elo."""
        rating, half = self.rating(entrant), Z95 * self.deviation(entrant)
        return rating - half, rating + half

    def difference(self, first: E, second: E) -> tuple[float, float]:
        """Return mean and standard deviation of how much better ``first`` is, in Elo."""
        i, j = self.index(first), self.index(second)
        # Errors against the anchor are common to both and cancel in the difference.
        deviation = float(np.linalg.norm(self.spread[i] - self.spread[j]))
        return float(self.ratings[i] - self.ratings[j]), deviation

    def probability_better(self, first: E, second: E) -> float:
        """Return the probability that ``first`` is the stronger one."""
        return probability_positive(*self.difference(first, second))


def probability_positive(mean: float, deviation: float) -> float:
    """Return the probability that a normal variable is above 0; 0.5 if it is 0 for certain."""
    # Two anchors: their difference is known exactly.
    if deviation <= 0.0:
        return 0.5 if mean == 0.0 else float(mean > 0.0)
    # Phi(mean / deviation) by erfc, which keeps its digits far in the lower tail.
    return 0.5 * math.erfc(-mean / (deviation * math.sqrt(2.0)))
