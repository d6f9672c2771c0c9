"""What a rating model takes and gives: results of pairs, and ratings with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from populations.ratings.fitting.components import Components
from populations.ratings.fitting.posterior import FloatArray

Z95 = 1.959963984540054
"""Half the width of a 95% interval in standard deviations."""


E = TypeVar("E", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[E]):
    """Matches between two entrants in one pair of seats, seen from ``first``.

    Attributes:
        first: An entrant: any hashable name.
        second: Another one.
        seats: Indices of their seats, in this order; equal numbers if seats do not matter.
        wins: Of ``first``. A float where scores between 0 and 1 were counted in parts.
        draws: Matches with equal scores.
        losses: Of ``first``.
        score_sum: Sum of ``first``'s scores, where they say by how much it won or lost; None: one
            for a win and half for a draw.
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
    """Ratings and what is known about them.

    Attributes:
        entrants: Everyone rated, in an order that does not depend on that of the results.
        ratings: Elo. float64 [N].
        spread: Elo: the ratings' covariance (Laplace's approximation) is spread @ spread.T, so a
            rating's standard deviation is the length of its row, and a difference's that of the
            difference of two rows. Rows of anchors are 0. float64 [N, K].
        advantages: By pair of seats, lower first: Elo that the first seat is worth.
        components: Constants of the model, as they were estimated.
        shrunk: Elo, by priors that are only as wide as the entrants lie apart: right about the best
            of many, who was lucky, too; less so about how far all are from the anchor. float64 [N].
    """

    entrants: tuple[E, ...]
    ratings: FloatArray
    spread: FloatArray
    advantages: Mapping[tuple[int, int], float]
    components: Components
    shrunk: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """Of the ratings, in Elo squared. float64 [N, N]: for few entrants."""
        return self.spread @ self.spread.T

    @property
    def deviations(self) -> FloatArray:
        """Standard deviations of the ratings, in Elo. float64 [N]."""
        return np.asarray(np.linalg.norm(self.spread, axis=1), dtype=np.float64)

    def index(self, entrant: E) -> int:
        """Position of an entrant.

        Raises:
            ValueError: If it was not rated.
        """
        return self.entrants.index(entrant)

    def rating(self, entrant: E) -> float:
        """Elo."""
        return float(self.ratings[self.index(entrant)])

    def deviation(self, entrant: E) -> float:
        """Standard deviation of the rating, in Elo."""
        return float(np.linalg.norm(self.spread[self.index(entrant)]))

    def interval(self, entrant: E) -> tuple[float, float]:
        """Ends of the 95% interval, in Elo."""
        rating, half = self.rating(entrant), Z95 * self.deviation(entrant)
        return rating - half, rating + half

    def difference(self, first: E, second: E) -> tuple[float, float]:
        """Mean and standard deviation of how much better ``first`` is, in Elo."""
        i, j = self.index(first), self.index(second)
        deviation = float(np.linalg.norm(self.spread[i] - self.spread[j]))
        return float(self.ratings[i] - self.ratings[j]), deviation

    def probability_better(self, first: E, second: E) -> float:
        """Probability that ``first`` is the stronger one."""
        return probability_positive(*self.difference(first, second))


def probability_positive(mean: float, deviation: float) -> float:
    """Probability that a normal variable is above 0; 0.5 if it is 0 for certain."""
    if deviation <= 0.0:
        return 0.5 if mean == 0.0 else float(mean > 0.0)
    return 0.5 * math.erfc(-mean / (deviation * math.sqrt(2.0)))


class RatingModel(Protocol):
    """Turns results into ratings with their uncertainty. Keeps no state."""

    def fit(
        self,
        results: Iterable[Result[E]],
        *,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        times: Mapping[E, tuple[str, float]] | None = None,
        anchors: Collection[E] = (),
    ) -> Fit[E]:
        """Fit ratings.

        Args:
            results: In any order.
            entrants: To be rated even if they have no result.
            parents: Whose rating is the prior mean, for those that have a rated parent.
            times: Population and age of those who learn: what all gain with time is found out.
            anchors: At exactly 0. Without any, the mean of all ratings is 0.

        Raises:
            ValueError: If counts are negative or not finite, an entrant plays itself, or parents
                go round in a circle.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamGame(Generic[E]):
    """One game between sides.

    Attributes:
        sides: Two or more, each with one or more players; nobody plays twice.
        results: Of each side: the higher one is ahead, equal ones draw. Only their order counts.
    """

    sides: tuple[tuple[E, ...], ...]
    results: tuple[float, ...]

    def check(self) -> None:
        """Check what the class says.

        Raises:
            ValueError: If it does not hold.
        """
        players = [player for side in self.sides for player in side]
        if len(self.sides) < 2 or not all(self.sides) or len(set(players)) != len(players):
            raise ValueError(
                "a game needs two or more sides of different players, each with at least one, "
                f"got {self.sides!r}"
            )
        if len(self.results) != len(self.sides) or not all(map(math.isfinite, self.results)):
            raise ValueError(
                f"a game needs one finite result for each of its {len(self.sides)} sides, "
                f"got {self.results!r}"
            )
