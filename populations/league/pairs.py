"""Rows of results between two entrants: made of tallies, turned, added up.

A row is one entrant in one seat against another in another seat; of many seats, one entrant against
another in all of them.

Tests: `tests/populations/league/test_payoff.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from arena.matches.comparisons import (
    comparisons,
    is_by_seats,
    is_tally_by_seats,
    result_weights,
)
from arena.matches.pair_scores import added_sums, num_scored, points, reversed_sums
from arena.types import Entrant, PairScore, Seat, Tally
from populations.league.elimination import Link
from populations.records.aggregates import PairRow

JEFFREYS = 0.5
"""Added to wins and to losses: the Beta(1/2, 1/2) prior."""

Seats = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """Decayed counts of two entrants, seen from the first one.

    Attributes:
        wins: Wins of the first one.
        draws: Matches with equal scores.
        losses: Losses of the first one.
        return_sum: Sum of the first one's returns.
        opponent_return_sum: Sum of the second one's returns.
        score_sum: Sum of the first one's scores, where scores are margins.
        square_sum: Sum of the squares of these scores; None where ``score_sum`` is.
    """

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    return_sum: float = 0.0
    opponent_return_sum: float = 0.0
    score_sum: float | None = None
    square_sum: float | None = None

    @property
    def matches(self) -> float:
        """Number of matches that the counts are worth."""
        return num_scored(self)

    @property
    def win_rate(self) -> float:
        """Posterior mean of the score, draws half: in (0, 1), and 0.5 without a match."""
        # Mean of Beta(wins + 1/2, losses + 1/2), draws half.
        return (points(self) + JEFFREYS) / (self.matches + 2.0 * JEFFREYS)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the first one; None without a match."""
        return self.return_sum / self.matches if self.matches else None

    def reversed(self) -> PairRecord:
        """Return the same seen from the other one."""
        score_sum, square_sum = reversed_sums(self)
        return PairRecord(
            wins=self.losses,
            draws=self.draws,
            losses=self.wins,
            return_sum=self.opponent_return_sum,
            opponent_return_sum=self.return_sum,
            score_sum=score_sum,
            square_sum=square_sum,
        )


class PairRows:
    """Rows of tallies: of each pair of seats, or, with many seats, of each pair of players.

    Args:
        seats: Seats of whole sides.

    Attributes:
        weight: Weight of the result of one pair of seats, in matches.
        num_seats: Number of seats that rows are filed under, the first ones.
    """

    def __init__(self, seats: tuple[Seat, ...]) -> None:
        self._seats = seats
        # A match must count as one, but with n sides each meets n - 1 others.
        self.weight = 1.0 / max(len({seat.side for seat in seats}) - 1, 1)
        first: dict[str, int] = {}
        for index, seat in enumerate(seats):
            first.setdefault(seat.population, index)
        # Results of many seats are filed under the first one of their population.
        self._file = [first[seat.population] for seat in seats]
        self.num_seats = len(seats) if is_by_seats(seats) else 1 + max(self._file)

    def of(self, tally: Tally, *, kind: Literal["train", "evaluate"]) -> Iterator[PairRow]:
        """Return the rows of one tally.

        Args:
            tally: Results of some matches.
            kind: Kind of the assignment.
        """
        if is_tally_by_seats(tally, self._seats):
            return pair_rows(tally, kind=kind, weight=self.weight)
        return self._rows_of_players(tally, kind=kind)

    def _rows_of_players(
        self, tally: Tally, *, kind: Literal["train", "evaluate"]
    ) -> Iterator[PairRow]:
        """Return one row for each two players, in one order: by population, then by name."""
        names = [
            (seat.population, entrant)
            for seat, entrant in zip(self._seats, tally.entrants, strict=True)
        ]
        compared = {one.names: one for one in comparisons(self._seats, entrants=tally.entrants)}
        numbers = {pair: one.number for pair, one in compared.items()}
        weights = result_weights(numbers, entrants=names)
        for pair in tally.pairs:
            key = (pair.first, pair.second)
            own, other = compared[key].return_sums(tally.return_sum, seats=self._seats)
            weight = weights[key]
            score_sum, square_sum = _weighed_sums(pair, weight)
            row = PairRow(
                kind=kind,
                first=tally.entrants[pair.first],
                second=tally.entrants[pair.second],
                first_seat=self._file[pair.first],
                second_seat=self._file[pair.second],
                wins=weight * pair.wins,
                draws=weight * pair.draws,
                losses=weight * pair.losses,
                first_return_sum=weight * own,
                second_return_sum=weight * other,
                score_sum=score_sum,
                square_sum=square_sum,
            )
            is_first = (row.first_seat, row.first) < (row.second_seat, row.second)
            yield row if is_first else swapped(row)


def pair_rows(
    tally: Tally, *, kind: Literal["train", "evaluate"], weight: float = 1.0
) -> Iterator[PairRow]:
    """Return the rows of one tally, one for each pair of its seats, the lower seat first.

    Args:
        tally: Results of some matches.
        kind: Kind of the assignment.
        weight: Weight, in matches, of the result of one pair.
    """
    for pair in tally.pairs:
        score_sum, square_sum = _weighed_sums(pair, weight)
        yield PairRow(
            kind=kind,
            first=tally.entrants[pair.first],
            second=tally.entrants[pair.second],
            first_seat=pair.first,
            second_seat=pair.second,
            wins=weight * pair.wins,
            draws=weight * pair.draws,
            losses=weight * pair.losses,
            first_return_sum=weight * tally.return_sum[pair.first],
            second_return_sum=weight * tally.return_sum[pair.second],
            score_sum=score_sum,
            square_sum=square_sum,
        )


def _weighed_sums(pair: PairScore, weight: float) -> tuple[float | None, float | None]:
    if pair.score_sum is None or pair.square_sum is None:
        return None, None
    return weight * pair.score_sum, weight * pair.square_sum


def part_of(row: PairRow, num_matches: int, *, of: int) -> PairRow:
    """Return a row of ``of`` matches as if it were of so many of them."""
    if num_matches == of:
        return row

    def scaled(value: float) -> float:
        # The product first: what is whole afterwards is whole to the bit.
        return value * num_matches / of

    return replace(
        row,
        wins=scaled(row.wins),
        draws=scaled(row.draws),
        losses=scaled(row.losses),
        first_return_sum=scaled(row.first_return_sum),
        second_return_sum=scaled(row.second_return_sum),
        score_sum=None if row.score_sum is None else scaled(row.score_sum),
        square_sum=None if row.square_sum is None else scaled(row.square_sum),
    )


def added(old: PairRow | None, new: PairRow, *, remaining: float = 1.0) -> PairRow:
    """Add the counts of ``new`` to ``remaining`` times the old ones of the same pair."""
    if old is None:
        return new
    score_sum, square_sum = added_sums(old, new, remaining=remaining)
    return PairRow(
        kind=new.kind,
        first=new.first,
        second=new.second,
        first_seat=new.first_seat,
        second_seat=new.second_seat,
        wins=old.wins * remaining + new.wins,
        draws=old.draws * remaining + new.draws,
        losses=old.losses * remaining + new.losses,
        first_return_sum=old.first_return_sum * remaining + new.first_return_sum,
        second_return_sum=old.second_return_sum * remaining + new.second_return_sum,
        score_sum=score_sum,
        square_sum=square_sum,
    )


def link_row(link: Link, first: Entrant, second: Entrant, *, seat: int) -> PairRow:
    """Return the row of what players that are gone say of two."""
    counts = link.counts()
    return PairRow(
        kind="merged",
        first=first,
        second=second,
        first_seat=seat,
        second_seat=seat,
        wins=counts.wins,
        losses=counts.losses,
        score_sum=counts.points,
        square_sum=counts.squares,
    )


def seat_advantage(table: Sequence[float], seats: Seats) -> float:
    """Return Elo that the first of two seats is worth against the second; 0 where none is known.

    Args:
        table: Advantages of a fit, row by row; empty: none.
        seats: The seats that a row is filed under.
    """
    # A table for many seats has only those that results are filed under.
    size, (first, second) = math.isqrt(len(table)), seats
    return table[first * size + second] if max(seats) < size else 0.0


def seats_of(row: PairRow) -> Seats:
    """Return the seats of a row's two entrants."""
    return (row.first_seat, row.second_seat)


def swapped(row: PairRow) -> PairRow:
    """Return a row seen from its second entrant."""
    score_sum, square_sum = reversed_sums(row)
    return PairRow(
        kind=row.kind,
        first=row.second,
        second=row.first,
        first_seat=row.second_seat,
        second_seat=row.first_seat,
        wins=row.losses,
        draws=row.draws,
        losses=row.wins,
        first_return_sum=row.second_return_sum,
        second_return_sum=row.first_return_sum,
        score_sum=score_sum,
        square_sum=square_sum,
    )


def renamed(row: PairRow, entrant: Entrant, into: Entrant) -> PairRow:
    """Return a row with another in the place of an entrant, as the lower of the two sees it."""
    row = replace(row, first=into) if row.first == entrant else replace(row, second=into)
    return row if row.first < row.second else swapped(row)


def nothing(row: PairRow) -> PairRow:
    """Return a row of the same pair and seats, without a match."""
    return PairRow(
        kind=row.kind,
        first=row.first,
        second=row.second,
        first_seat=row.first_seat,
        second_seat=row.second_seat,
    )


def total_of(rows: Iterable[PairRow]) -> PairRecord:
    """Sum the rows of one pair, in their order, seen from their first entrant."""
    total = PairRecord()
    for row in rows:
        score_sum, square_sum = added_sums(total, row)
        total = PairRecord(
            wins=total.wins + row.wins,
            draws=total.draws + row.draws,
            losses=total.losses + row.losses,
            return_sum=total.return_sum + row.first_return_sum,
            opponent_return_sum=total.opponent_return_sum + row.second_return_sum,
            score_sum=score_sum,
            square_sum=square_sum,
        )
    return total
