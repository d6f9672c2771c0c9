"""Sums over tallies, stored in the journal so that the tallies need not be read again.

They are rows of the journal like those of `populations.records.rows`.

Tests: `tests/populations/records/test_tables.py` and `tests/populations/league/test_payoff.py`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from arena.matches.pair_scores import mean_score
from arena.types import Entrant

RecordKey = tuple[str, Entrant]
"""Population and entrant."""

PairKey = tuple[str, Entrant, Entrant, int, int]
"""Kind, first, second, first_seat, second_seat."""


class Row(Struct, frozen=True, kw_only=True):
    """Row of a table of the journal."""


class RecordRow(Row, frozen=True, kw_only=True, gc=False):
    """Evaluation matches of one entrant: sums over the evaluation tallies that name it.

    A generation of a policy has a row, too, once weights of it are removed: their results are
    added up there (`populations.league.merging`).

    Attributes:
        population: Population whose agents it played; ``bot:random`` has a row in each.
        entrant: Weights digest or bot; for removed weights, the policy and generation.
        matches: Number of matches, counted once for each of its seats.
        wins: Number of wins, counted over pairs of one of its seats and one of another side.
        draws: Number of draws, counted like ``wins``.
        losses: Number of losses, counted like ``wins``.
        return_sum: Sum of returns over its matches.
        return_sum_of_squares: Sum of squared returns over its matches.
        score_sum: Sum of its scores over these pairs, where scores are margins. None where scores
            are 1 for a win and 1/2 for a draw, which the counts give.
    """

    population: str
    entrant: Entrant
    # These are whole numbers, because evaluation matches do not decay.
    matches: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    return_sum: float = 0.0
    return_sum_of_squares: float = 0.0
    score_sum: float | None = None

    @property
    def key(self) -> RecordKey:
        """Unique key of the row."""
        return (self.population, self.entrant)

    @property
    def points(self) -> float:
        """Sum of the entrant's scores over its pairs of seats."""
        return self.wins + 0.5 * self.draws if self.score_sum is None else self.score_sum

    @property
    def score(self) -> float | None:
        """Mean score per opponent, in [0, 1]; None without an opponent."""
        return mean_score(self.points, self.wins + self.draws + self.losses)


class PairRow(Row, frozen=True, kw_only=True, gc=False):
    """Results of two entrants in two seats: sums over the tallies of their matches.

    With n sides the result of one pair of seats counts 1/(n - 1) of a match, so that no match
    counts more than once for a player. Evaluation matches do not decay, and ``first_seat`` is the
    lower seat. Training matches decay with later ones of the same two entrants in any seats
    (`populations.league.payoff`), and ``first`` is the entrant that sorts lower. Removed players
    leave rows, too: matches against them become equivalent matches between the entrants that
    remain, with ``first_seat`` equal to ``second_seat`` (`populations.league.merging.Link`).

    Attributes:
        kind: Kind of the assignments; ``merged``: equivalent matches that removed players left.
        first: An entrant.
        second: Another entrant; two entrants of one population are never the same.
        first_seat: Index of the seat of ``first``.
        second_seat: Index of the seat of ``second``.
        wins: Wins of ``first``.
        draws: Matches with equal scores.
        losses: Losses of ``first``.
        first_return_sum: Sum of the returns of ``first``'s seat.
        second_return_sum: Sum of the returns of ``second``'s seat.
        score_sum: Sum of ``first``'s scores, where scores are margins. None where scores are 1 for
            a win and 1/2 for a draw, which the counts give.
        square_sum: Sum of the squares of these scores; None where ``score_sum`` is None.
    """

    kind: Literal["train", "evaluate", "merged"]
    first: Entrant
    second: Entrant
    first_seat: int
    second_seat: int
    # Counts are fractions: a pair of seats counts 1/(n - 1), and training matches decay.
    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    first_return_sum: float = 0.0
    second_return_sum: float = 0.0
    score_sum: float | None = None
    square_sum: float | None = None

    @property
    def key(self) -> PairKey:
        """Unique key of the row."""
        return (self.kind, self.first, self.second, self.first_seat, self.second_seat)
