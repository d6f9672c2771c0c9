"""Who beats whom while training: what matchmaking reads.

Sparse: only pairs that met take room. A pair is one entrant in one seat against another in another
seat; a view without seats is the sum over them, in the order of the seats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from arena.matches.pair_scores import added_sums, num_scored, points, reversed_sums
from arena.types import Entrant, PairScore, Tally
from populations.records.aggregates import PairRow

JEFFREYS = 0.5
"""Added to wins and to losses: the Beta(1/2, 1/2) prior."""

Seats = tuple[int, int]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """Decayed counts of two entrants, seen from the first one.

    Attributes:
        wins: Of the first one.
        draws: Matches with equal scores.
        losses: Of the first one.
        return_sum: Of the first one, over these matches.
        opponent_return_sum: Of the second one.
        score_sum: Of the first one's scores, where they say by how much it won or lost.
        square_sum: Of the squares of these scores; None where ``score_sum`` is.
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
        """How many matches the counts are worth."""
        return num_scored(self)

    @property
    def win_rate(self) -> float:
        """Posterior mean of the score, draws half: in (0, 1), and 0.5 without a match."""
        return (points(self) + JEFFREYS) / (self.matches + 2.0 * JEFFREYS)

    @property
    def mean_return(self) -> float | None:
        """Of the first one, per match; None without a match."""
        return self.return_sum / self.matches if self.matches else None

    def reversed(self) -> PairRecord:
        """The same seen from the other one."""
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


@dataclass(slots=True, weakref_slot=True)
class Followed:
    """Whom one entrant has met, in order of first meeting, and how that went.

    Attributes:
        others: Whom it has met.
    """

    others: list[Entrant] = field(default_factory=list)
    _places: dict[Entrant, int] = field(default_factory=dict)
    _results: FloatArray = field(default_factory=lambda: np.zeros((2, 16)))

    @property
    def results(self) -> FloatArray:
        """Wins and losses against each, draws half. float64 [2, others]."""
        return self._results[:, : len(self.others)]

    def place(self, other: Entrant) -> int | None:
        """Return where another one is; None if it was never met."""
        return self._places.get(other)

    def put(self, other: Entrant, total: PairRecord, *, is_first: bool) -> None:
        """Take in what was done against another one.

        Args:
            other: The other one.
            total: Over all seats, seen from the entrant that sorts lower.
            is_first: Whether that is the entrant itself.
        """
        place = self._places.setdefault(other, len(self.others))
        if place == len(self.others):
            self.others.append(other)
            if place == self._results.shape[1]:
                self._results = np.concatenate(
                    [self._results, np.zeros_like(self._results)], axis=1
                )
        wins, losses = total.wins + 0.5 * total.draws, total.losses + 0.5 * total.draws
        self._results[:, place] = (wins, losses) if is_first else (losses, wins)


class Payoff:
    """Results between entrants, from training tallies. Owned by one thread.

    Old results fade with the matches of their own pair in all its seats, not with time, so a rival
    who has not been met for long is as well known as before. A trainee's entrant names its
    generation, so its statistics start anew after an exploit. Folding the same tallies gives the
    same table to the bit, and so does taking in the rows that `add` gave and going on from there.
    """

    def __init__(self, *, half_life_matches: float, pair_weight: float = 1.0) -> None:
        """An empty table.

        Args:
            half_life_matches: After so many further matches of a pair, a result counts half.
            pair_weight: How much of a match the result of one pair of seats counts.

        Raises:
            ValueError: If ``half_life_matches`` is not above 0.
        """
        if not half_life_matches > 0.0:
            raise ValueError(f"half_life_matches must be above 0, got {half_life_matches!r}")
        self.half_life_matches = half_life_matches
        self._pair_weight = pair_weight
        self._met: dict[Entrant, dict[Entrant, tuple[PairRow, ...]]] = {}
        """By both entrants, either way round: the rows of their seats, in order."""
        self._followed: WeakValueDictionary[Entrant, Followed] = WeakValueDictionary()

    @property
    def records(self) -> Mapping[tuple[Entrant, Entrant], PairRecord]:
        """All pairs that met, each once, the entrant that sorts lower first."""
        return {
            (first, second): _total(rows)
            for first, met in self._met.items()
            for second, rows in met.items()
            if first < second
        }

    def put(self, row: PairRow) -> None:
        """Take in a stored row, in the place of the one with the same entrants and seats."""
        old = self._rows(row.first, row.second)
        if not old:
            self._set((row,))
            return
        kept = [other for other in old if other.key != row.key]
        self._set(tuple(sorted((*kept, row), key=_seats)))

    def add(self, tally: Tally) -> list[PairRow]:
        """Take in the results of a tally: each pair of its seats that are on different sides.

        Pairs of seats with the same two players count as one batch, so their order does not
        matter. What an entrant does against itself says nothing and is left out.

        Returns:
            The rows that changed: all of each pair that met.
        """
        batches: dict[tuple[Entrant, Entrant], dict[Seats, PairRow]] = {}
        for played in pair_rows(tally, kind="train", weight=self._pair_weight):
            if played.first == played.second:
                continue
            row = played if played.first < played.second else _swapped(played)
            batches.setdefault((row.first, row.second), {})[_seats(row)] = row
        changed: list[PairRow] = []
        for (first, second), batch in batches.items():
            new = sum(num_scored(row) for row in batch.values())
            remaining = 0.5 ** (new / self.half_life_matches)
            old = {_seats(row): row for row in self._rows(first, second)}
            rows = [
                added(old.get(seats), batch.get(seats) or _nothing(old[seats]), remaining=remaining)
                for seats in sorted(old.keys() | batch.keys())
            ]
            self._set(tuple(rows))
            changed += rows
        return changed

    def record(self, first: Entrant, second: Entrant, *, seats: Seats | None = None) -> PairRecord:
        """Counts of a pair seen from ``first``; zeros if they never met.

        Args:
            first: An entrant.
            second: Another.
            seats: Only where ``first`` had the one seat and ``second`` the other; None: all.
        """
        if second < first:
            turned = None if seats is None else (seats[1], seats[0])
            return self.record(second, first, seats=turned).reversed()
        rows = self._rows(first, second)
        return _total(row for row in rows if seats is None or _seats(row) == seats)

    def win_rate(self, first: Entrant, second: Entrant) -> float:
        """How often ``first`` beats ``second``, draws half; 0.5 if they never met."""
        return self.record(first, second).win_rate

    def win_rates_of(self, entrant: Entrant) -> dict[Entrant, float]:
        """`win_rate` of an entrant against everybody whom it has met, in order of first meeting."""
        return {
            other: (_total(rows) if entrant < other else _total(rows).reversed()).win_rate
            for other, rows in self._met.get(entrant, {}).items()
        }

    def met(self, entrant: Entrant) -> Iterator[tuple[Entrant, float, float]]:
        """Whom an entrant has met, with its wins and losses, draws half; in order of meeting."""
        for other, rows in self._met.get(entrant, {}).items():
            won = sum(map(points, rows))
            lost = sum(map(num_scored, rows)) - won
            yield (other, won, lost) if rows[0].first == entrant else (other, lost, won)

    def follow(self, entrant: Entrant) -> Followed:
        """Return whom an entrant has met, as columns that are kept up to date while they are held.

        A decision that reads them does not look at all those meetings again.
        """
        followed = self._followed.get(entrant)
        if followed is None:
            followed = Followed()
            for other, rows in self._met.get(entrant, {}).items():
                followed.put(other, _total(rows), is_first=entrant < other)
            self._followed[entrant] = followed
        return followed

    def _rows(self, first: Entrant, second: Entrant) -> tuple[PairRow, ...]:
        met = self._met.get(first)
        return () if met is None else met.get(second, ())

    def _set(self, rows: tuple[PairRow, ...]) -> None:
        first, second = rows[0].first, rows[0].second
        self._met.setdefault(first, {})[second] = rows
        self._met.setdefault(second, {})[first] = rows
        for one, other in ((first, second), (second, first)):
            followed = self._followed.get(one)
            if followed is not None:
                followed.put(other, _total(rows), is_first=one == first)


def pair_rows(
    tally: Tally, *, kind: Literal["train", "evaluate"], weight: float = 1.0
) -> Iterator[PairRow]:
    """What one tally says about each pair of its seats, the lower seat first.

    Args:
        tally: Results of some matches.
        kind: Of the assignment.
        weight: How much of a match the result of one pair counts.
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


def added(old: PairRow | None, new: PairRow, *, remaining: float = 1.0) -> PairRow:
    """The counts of ``new``, and what ``remaining`` is of the same pair's old ones."""
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


def _seats(row: PairRow) -> Seats:
    return (row.first_seat, row.second_seat)


def _swapped(row: PairRow) -> PairRow:
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


def _nothing(row: PairRow) -> PairRow:
    return PairRow(
        kind=row.kind,
        first=row.first,
        second=row.second,
        first_seat=row.first_seat,
        second_seat=row.second_seat,
    )


def _total(rows: Iterable[PairRow]) -> PairRecord:
    """The sum over the rows of one pair, in their order, seen from their first entrant."""
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
