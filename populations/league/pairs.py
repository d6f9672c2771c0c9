"""Rows of results between two entrants, made from tallies.

A row has the results of one entrant in one seat against another entrant in another seat. Where
there are many seats, it has the results of the two entrants in all of their seats.

Tests: `tests/populations/league/test_payoff.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from arena.matches.comparisons import comparisons, is_by_seats, is_tally_by_seats, result_weights
from arena.matches.pair_scores import added_sums, points, reversed_sums, squares
from arena.types import (
    Entrant,
    PairScore,
    Seat,
    Tally,
)
from populations.records.aggregates import PairRow

Seats = tuple[int, int]

SUMS = (
    *("wins", "draws", "losses", "first_return_sum", "second_return_sum"),
    *("score_sum", "square_sum"),
)
"""Fields of a row that add up over matches."""


class PairRows:
    """Maker of rows from tallies: one for each pair of seats, or of players where seats are many.

    Args:
        seats: Seats of whole sides.

    Attributes:
        weight: Weight of the result of one pair of seats, in matches.
        num_seats: Number of seats, counted from the first, that rows may name.
    """

    def __init__(self, seats: tuple[Seat, ...]) -> None:
        self._seats = seats
        # With n sides each side has n - 1 results per match, which together must count as one.
        self.weight = 1.0 / max(len({seat.side for seat in seats}) - 1, 1)
        first: dict[str, int] = {}
        for index, seat in enumerate(seats):
            first.setdefault(seat.population, index)
        # Where seats are many, a row names the first seat of each entrant's population.
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
        """Yield one row for each pair of players, sorted by population, then by name."""
        names = [
            (seat.population, entrant)
            for seat, entrant in zip(self._seats, tally.entrants, strict=True)
        ]
        compared = {one.names: one for one in comparisons(self._seats, entrants=tally.entrants)}
        numbers = {pair: one.number for pair, one in compared.items()}
        weights = result_weights(numbers, entrants=names)
        for pair in tally.pairs:
            key = (pair.first, pair.second)
            returns = compared[key].return_sums(tally.return_sum, seats=self._seats)
            seats = (self._file[pair.first], self._file[pair.second])
            row = _row(tally, pair, kind=kind, seats=seats, returns=returns, weight=weights[key])
            is_first = (row.first_seat, row.first) < (row.second_seat, row.second)
            yield row if is_first else swapped(row)


def pair_rows(
    tally: Tally, *, kind: Literal["train", "evaluate"], weight: float = 1.0
) -> Iterator[PairRow]:
    """Yield the rows of one tally, one for each pair of its seats, the lower seat first.

    Args:
        tally: Results of some matches.
        kind: Kind of the assignment.
        weight: Weight, in matches, of the result of one pair.
    """
    for pair in tally.pairs:
        returns = (tally.return_sum[pair.first], tally.return_sum[pair.second])
        seats = (pair.first, pair.second)
        yield _row(tally, pair, kind=kind, seats=seats, returns=returns, weight=weight)


def _row(
    tally: Tally,
    pair: PairScore,
    *,
    kind: Literal["train", "evaluate"],
    seats: Seats,
    returns: tuple[float, float],
    weight: float,
) -> PairRow:
    """Return the row of a pair's results, with the given seats."""
    has_sums = pair.score_sum is not None and pair.square_sum is not None
    return PairRow(
        kind=kind,
        first=tally.entrants[pair.first],
        second=tally.entrants[pair.second],
        first_seat=seats[0],
        second_seat=seats[1],
        wins=weight * pair.wins,
        draws=weight * pair.draws,
        losses=weight * pair.losses,
        first_return_sum=weight * returns[0],
        second_return_sum=weight * returns[1],
        score_sum=weight * points(pair) if has_sums else None,
        square_sum=weight * squares(pair) if has_sums else None,
    )


def part_of(row: PairRow, num_matches: int, *, of: int) -> PairRow:
    """Scale a row that counts ``of`` matches down to ``num_matches`` of them."""
    if num_matches == of:
        return row

    known = {name: getattr(row, name) for name in SUMS}
    # Multiplying before dividing makes whole results exact.
    parts = {name: value * num_matches / of for name, value in known.items() if value is not None}
    return replace(row, **parts)


def added(old: PairRow | None, new: PairRow, *, remaining: float = 1.0) -> PairRow:
    """Add the counts of ``new`` to ``remaining`` times the old ones of the same pair."""
    if old is None:
        return new
    score_sum, square_sum = added_sums(old, new, remaining=remaining)
    return replace(
        new,
        wins=old.wins * remaining + new.wins,
        draws=old.draws * remaining + new.draws,
        losses=old.losses * remaining + new.losses,
        first_return_sum=old.first_return_sum * remaining + new.first_return_sum,
        second_return_sum=old.second_return_sum * remaining + new.second_return_sum,
        score_sum=score_sum,
        square_sum=square_sum,
    )


def seat_advantage(table: Sequence[float], seats: Seats) -> float:
    """Return the advantage of the first of two seats over the second in Elo; 0 if unknown.

    Args:
        table: Advantages of a fit, row by row; empty: none.
        seats: Seats of a row.
    """
    # Where seats are many, the table has only the seats that rows name.
    size, (first, second) = math.isqrt(len(table)), seats
    return table[first * size + second] if max(seats) < size else 0.0


def seats_of(row: PairRow) -> Seats:
    """Return the seats of a row's two entrants."""
    return (row.first_seat, row.second_seat)


def swapped(row: PairRow) -> PairRow:
    """Return a row seen from its second entrant."""
    score_sum, square_sum = reversed_sums(row)
    return replace(
        row,
        first=row.second,
        second=row.first,
        first_seat=row.second_seat,
        second_seat=row.first_seat,
        wins=row.losses,
        losses=row.wins,
        first_return_sum=row.second_return_sum,
        second_return_sum=row.first_return_sum,
        score_sum=score_sum,
        square_sum=square_sum,
    )


def renamed(row: PairRow, entrant: Entrant, into: Entrant) -> PairRow:
    """Return a row with an entrant replaced by another, and the lower entrant first."""
    row = replace(row, first=into) if row.first == entrant else replace(row, second=into)
    return row if row.first < row.second else swapped(row)


def nothing(row: PairRow) -> PairRow:
    """Return a row of the same pair and seats without any matches."""
    return PairRow(
        kind=row.kind,
        first=row.first,
        second=row.second,
        first_seat=row.first_seat,
        second_seat=row.second_seat,
    )
