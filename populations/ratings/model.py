"""What a rating model takes and gives: results of pairs, and ratings with their uncertainty."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from populations.ratings.bradley_terry import Fit

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
