"""Sums of the results of matches, a row for each distinct tuple of entrants.

Shapes: N matches, Q seats.

Tests: `tests/arena/matches/test_tally.py`, `tests/arena/matches/test_comparisons.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from msgspec.structs import replace

from arena.envs.batched.scoring import score_against
from arena.matches.comparisons import Comparison, comparisons, is_by_seats
from arena.matches.distinct import NO_DECISION, Games, num_distinct
from arena.matches.openings import MAX_ACTIONS, MAX_CODES, NOT_COUNTED, most_played
from arena.matches.pair_scores import kept_sums
from arena.types import Entrant, PairScore, Seat, SeatOpenings, Tally


class TallySums:
    """Sums of results, one row per distinct tuple of entrants.

    The sums are on the CPU, where floats are added in one order and give one result.

    Args:
        entrants: Tuples with one entrant per seat; equal ones are one row.
        seats: The environment's seats.
        compare: Whether seats are compared in pairs.

    Attributes:
        rows: Row of each tuple in ``entrants``. int64.
    """

    def __init__(
        self,
        entrants: Sequence[tuple[Entrant, ...]],
        *,
        seats: tuple[Seat, ...],
        compare: bool,
    ) -> None:
        row_of: dict[tuple[Entrant, ...], int] = {}
        self.rows = torch.tensor([row_of.setdefault(names, len(row_of)) for names in entrants])
        self._entrants = tuple(row_of)
        rows, num_seats = len(self._entrants), len(seats)
        compared = [comparisons(seats, entrants=row) if compare else () for row in row_of]
        self._tables = _tables(compared, seats=seats)
        self._seats = seats
        self._has_players = compare and not is_by_seats(seats)
        self._matches = torch.zeros(rows, dtype=torch.int64)
        self._length = torch.zeros(rows, dtype=torch.int64)
        self._returns = torch.zeros(rows, num_seats, dtype=torch.float64)
        self._squares = torch.zeros(rows, num_seats, dtype=torch.float64)
        self._games: list[Games] = []
        # Each entry has the row and the points of the seats' sides of one call.
        self._added: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(
        self,
        row: torch.Tensor,
        *,
        seat_return: torch.Tensor,
        seat_score: torch.Tensor,
        length: torch.Tensor,
        game: torch.Tensor | None = None,
    ) -> None:
        """Add N matches. The tensors are on the CPU.

        Args:
            row: Index of each match's tuple of entrants. int64 [N].
            seat_return: Mean undiscounted return of the seat's agents. float64 [N, Q].
            seat_score: Points of the seat's side, as in ``Turn.score``. [N, Q].
            length: Calls of ``step``. int64 [N].
            game: Hashes of the decisions, in every call or in none. int64 [N].
        """
        if game is not None:
            self._games.append(Games(row=row, decisions=game, returns=seat_return))
        self._matches.index_add_(0, row, torch.ones_like(row))
        self._length.index_add_(0, row, length)
        # index_add_ adds repeated rows, while indexing with += would keep only one of them.
        self._returns.index_add_(0, row, seat_return)
        self._squares.index_add_(0, row, seat_return.square())
        # With many seats no seat has points of its own (`_openings`).
        if not self._has_players:
            self._added.append((row, seat_score))
        for table in self._tables:
            table.add(row, seat_score)

    def tallies(self, *, first: torch.Tensor | None = None) -> tuple[Tally, ...]:
        """Return one tally per tuple of entrants with a match.

        Args:
            first: First decision of each seat in all matches, in their order. int64 [.., Q]. None:
                they are not counted.
        """
        matches, lengths = self._matches.tolist(), self._length.tolist()
        returns, squares = self._returns.tolist(), self._squares.tolist()
        pairs: dict[int, tuple[PairScore, ...]] = {}
        for table in self._tables:
            pairs |= table.pair_scores()
        distinct = num_distinct(self._games, rows=len(matches))
        openings = self._openings(first)
        return tuple(
            Tally(
                entrants=entrants,
                matches=matches[row],
                pairs=pairs.get(row, ()),
                return_sum=self._of_players(returns[row], entrants),
                return_sum_of_squares=self._of_players(squares[row], entrants),
                length_sum=lengths[row],
                distinct=distinct[row] if self._games else None,
                openings=openings[row],
            )
            for row, entrants in enumerate(self._entrants)
            if matches[row]
        )

    def _of_players(
        self, values: Sequence[float], entrants: tuple[Entrant, ...]
    ) -> tuple[float, ...]:
        """Return a value for each seat; with many seats, the mean over its player's seats."""
        if not self._has_players:
            return tuple(values)
        names = [
            (seat.population, entrant) for seat, entrant in zip(self._seats, entrants, strict=True)
        ]
        seated: dict[tuple[str, Entrant], list[float]] = {}
        for name, value in zip(names, values, strict=True):
            seated.setdefault(name, []).append(value)
        means = {name: math.fsum(own) / len(own) for name, own in seated.items()}
        return tuple(means[name] for name in names)

    def _openings(self, first: torch.Tensor | None) -> list[tuple[SeatOpenings, ...]]:
        """Count first decisions by row; rows without any have no openings."""
        if first is None or not self._added:
            return [()] * len(self._entrants)
        (table,) = self._tables
        row, score = (torch.cat(parts) for parts in zip(*self._added, strict=True))
        points = torch.zeros(first.shape, dtype=torch.float64)
        for one, other in table.pairs:
            won = score_against(score[:, one], score[:, other])
            points[:, one] += won
            points[:, other] += 1.0 - won
        # A seat's points in a match are the mean over its rivals.
        rivals = [sum(seat in pair for pair in table.pairs) for seat in range(first.shape[1])]
        points /= torch.tensor(rivals).clamp(min=1)
        counted = first != NO_DECISION
        seats = [
            _openings_of_seat(row[own], first[own, seat], points[own, seat])
            for seat, own in enumerate(counted.unbind(dim=1))
        ]
        by_row = [
            tuple(seat.get(at, NOT_COUNTED) for seat in seats) for at in range(len(self._entrants))
        ]
        return [() if set(found) == {NOT_COUNTED} else found for found in by_row]


class _ResultTable:
    """Results of the rows in which the same seats are compared.

    P pairs of seats, C comparisons, T rows of the table, R rows of all tables.

    Args:
        rows: Rows of the table.
        num_rows: R.
        compared: Comparisons.
        seats: Seats of the environment.

    Attributes:
        pairs: Pairs of seats, comparison by comparison.
    """

    def __init__(
        self,
        rows: Sequence[int],
        *,
        num_rows: int,
        compared: tuple[Comparison, ...],
        seats: Sequence[Seat],
    ) -> None:
        self._rows, self._compared = tuple(rows), compared
        # Place of each row in this table; -1: the row is in another table. int64 [R].
        self._place = torch.full((num_rows,), -1)
        self._place[list(rows)] = torch.arange(len(rows))
        by_comparison = [list(one.pairs(seats)) for one in compared]
        self.pairs = [pair for pairs in by_comparison for pair in pairs]
        # int64 [P], [P]
        self._first, self._second = torch.tensor(self.pairs).reshape(-1, 2).unbind(dim=1)
        numbers = torch.tensor([len(pairs) for pairs in by_comparison])
        # Comparison of each pair; None: each comparison has one pair. int64 [P].
        self._comparison = None
        if len(self.pairs) > len(compared):
            self._comparison = torch.repeat_interleave(torch.arange(len(compared)), numbers)
        # Columns: wins, draws, losses of the first seat.
        self._results = torch.zeros(len(rows), len(compared), 3, dtype=torch.int64)
        # Columns: its scores and their squares.
        self._scores = torch.zeros(len(rows), len(compared), 2, dtype=torch.float64)

    def add(self, row: torch.Tensor, seat_score: torch.Tensor) -> None:
        """Add N matches; arguments as of `TallySums.add`."""
        place = self._place[row]
        if len(self._rows) < len(self._place):
            own = place >= 0
            place, seat_score = place[own], seat_score[own]
        if not len(place) or not self.pairs:
            return
        # [N, P]
        score = score_against(seat_score[:, self._first], seat_score[:, self._second])
        # Equal points give exactly 1/2, so a draw does not depend on rounding.
        result = torch.stack((score > 0.5, score == 0.5, score < 0.5), dim=2).long()
        both = torch.stack((score, score.square()), dim=2)
        if self._comparison is not None:
            result = _sums(result, self._comparison, number=len(self._compared))
            both = _sums(both, self._comparison, number=len(self._compared))
        # index_add_ adds repeated rows, while indexing with += would keep only one of them.
        self._results.index_add_(0, place, result)
        self._scores.index_add_(0, place, both)

    def pair_scores(self) -> dict[int, tuple[PairScore, ...]]:
        """Return the results of each row."""
        results, scores = self._results.tolist(), self._scores.tolist()
        names = [one.names for one in self._compared]
        return {
            row: tuple(map(_pair_score, names, results[place], scores[place]))
            for place, row in enumerate(self._rows)
        }


def _tables(
    compared: Sequence[tuple[Comparison, ...]], *, seats: Sequence[Seat]
) -> list[_ResultTable]:
    """Make a table for each set of rows in which the same seats are compared."""
    rows_of: dict[tuple[Comparison, ...], list[int]] = {}
    for row, one in enumerate(compared):
        rows_of.setdefault(one, []).append(row)
    return [
        _ResultTable(rows, num_rows=len(compared), compared=one, seats=seats)
        for one, rows in rows_of.items()
    ]


def _sums(values: torch.Tensor, group: torch.Tensor, *, number: int) -> torch.Tensor:
    """Add up columns of the same group: [N, P, K] -> [N, number, K]."""
    total = values.new_zeros(len(values), number, values.shape[2])
    return total.index_add_(1, group, values)


def _openings_of_seat(
    row: torch.Tensor, action: torch.Tensor, points: torch.Tensor
) -> dict[int, SeatOpenings]:
    """Return a seat's openings by row, from those of N matches."""
    # Row and action are combined into one number, because `unique` sorts rows column by column.
    different, index, counts = torch.unique(
        row * MAX_CODES + action, return_inverse=True, return_counts=True
    )
    # `index_add_` adds in the order of the matches on the CPU.
    won = torch.zeros(len(different), dtype=torch.float64).index_add_(0, index, points)
    found: dict[int, list[tuple[int, int, float]]] = {}
    for key, count, total in zip(different.tolist(), counts.tolist(), won.tolist(), strict=True):
        at, code = divmod(key, MAX_CODES)
        found.setdefault(at, []).append((code, count, total))
    return {at: most_played(lines, most=MAX_ACTIONS) for at, lines in found.items()}


def _pair_score(
    seats: tuple[int, int], results: Sequence[int], scores: Sequence[float]
) -> PairScore:
    wins, draws, losses = results
    pair = PairScore(first=seats[0], second=seats[1], wins=wins, draws=draws, losses=losses)
    score_sum, square_sum = kept_sums(pair, score_sum=scores[0], square_sum=scores[1])
    return replace(pair, score_sum=score_sum, square_sum=square_sum)
