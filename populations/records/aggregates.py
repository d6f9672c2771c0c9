"""Rows that tallies are folded into, kept beside them so that nobody needs all tallies again.

They are rows of the journal like those of `populations.records.rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arena.types import Entrant

RecordKey = tuple[str, Entrant]
"""Population and entrant."""

PairKey = tuple[str, Entrant, Entrant, int, int]
"""Kind, first, second, first_seat, second_seat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """Evaluation matches of one entrant: the fold of the evaluation tallies that name it.

    Attributes:
        population: Whose agents it played; ``bot:random`` has a row in each.
        entrant: Weights digest or bot.
        matches: Counted once for each of its seats.
        wins: Over the pairs of seats that it was in; so are draws and losses.
        draws: As ``wins``.
        losses: As ``wins``.
        return_sum: Over its matches.
        return_sum_of_squares: Over its matches.
        score_sum: Of its scores over these pairs, where they say by how much it won or lost; None:
            one for a win and half for a draw.
    """

    population: str
    entrant: Entrant
    matches: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    return_sum: float = 0.0
    return_sum_of_squares: float = 0.0
    score_sum: float | None = None

    @property
    def key(self) -> RecordKey:
        """What no other row has."""
        return (self.population, self.entrant)

    @property
    def points(self) -> float:
        """Sum of its scores."""
        return self.wins + 0.5 * self.draws if self.score_sum is None else self.score_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """Results of two entrants in two seats: the fold of the tallies in which they met.

    With n sides the result of one pair of seats counts 1/(n - 1) of a match, so that nobody's
    matches are counted more than once. Evaluation matches do not fade, and ``first_seat`` is the
    lower seat. Training matches fade with the later ones of the same two entrants in any seats
    (`populations.league.payoff`), and ``first`` is the entrant that sorts lower.

    Attributes:
        kind: Of the assignments.
        first: An entrant.
        second: Another one; never the same in the same population.
        first_seat: Index of the seat that ``first`` had.
        second_seat: Index of the seat that ``second`` had.
        wins: Of ``first``.
        draws: Matches with equal scores.
        losses: Of ``first``.
        first_return_sum: Of ``first``'s seat, over these matches.
        second_return_sum: Of ``second``'s seat.
        score_sum: Of ``first``'s scores, where they say by how much it won or lost; None: one for a
            win and half for a draw.
        square_sum: Of the squares of these scores; None where ``score_sum`` is.
    """

    kind: Literal["train", "evaluate"]
    first: Entrant
    second: Entrant
    first_seat: int
    second_seat: int
    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    first_return_sum: float = 0.0
    second_return_sum: float = 0.0
    score_sum: float | None = None
    square_sum: float | None = None

    @property
    def key(self) -> PairKey:
        """What no other row has."""
        return (self.kind, self.first, self.second, self.first_seat, self.second_seat)
