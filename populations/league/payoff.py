"""Results between entrants in training, for matchmaking; they decay with later matches.

The table is sparse: only pairs that have played take memory. Sums over seats are in the order of
the seats, so that a restored table gives the same bits.

Tests: `tests/populations/league/test_payoff.py`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from arena.matches.pair_scores import num_scored, points
from arena.types import Entrant, PolicyId, Tally, is_trainee, policy_of_trainee, trainee_entrant
from populations.league.pairs import (
    PairRows,
    Seats,
    added,
    nothing,
    pair_rows,
    renamed,
    seats_of,
    swapped,
)
from populations.records.aggregates import PairRow

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(slots=True, weakref_slot=True, eq=False)
class MetOpponents:
    """Opponents that one entrant has played, in order of the first match, with the results.

    Attributes:
        others: Opponents that were played.
    """

    others: list[Entrant] = field(default_factory=list)
    _places: dict[Entrant, int] = field(default_factory=dict)
    _results: FloatArray = field(default_factory=lambda: np.zeros((2, 16)))

    @property
    def results(self) -> FloatArray:
        """Scores won and lost against each opponent, draws half. float64 [2, others]."""
        return self._results[:, : len(self.others)]

    def put(self, other: Entrant, rows: Sequence[PairRow], *, is_first: bool) -> None:
        """Set the results against an opponent.

        Args:
            other: Opponent.
            rows: Results in each pair of seats, from the view of the entrant that sorts lower.
            is_first: Whether the columns' own entrant is the one that sorts lower.
        """
        place = self._places.setdefault(other, len(self.others))
        if place == len(self.others):
            self.others.append(other)
            if place == self._results.shape[1]:
                more = np.zeros((2, max(place, 16)))
                self._results = np.concatenate([self._results, more], axis=1)
        total = reduce(added, rows)
        won = points(total)
        lost = num_scored(total) - won
        self._results[:, place] = (won, lost) if is_first else (lost, won)

    def keep(self, places: IntArray) -> None:
        """Drop all opponents but some; a dropped one returns with its next match.

        Args:
            places: Indices of the opponents to keep, ascending. int64 [K].
        """
        self._results = self._results[:, places]
        self.others = [self.others[place] for place in places.tolist()]
        self._places = {other: place for place, other in enumerate(self.others)}


class Payoff:
    """Results between entrants, from training tallies. Owned by one thread.

    Old results decay with the matches of their own pair in all its seats, not with time, so the
    results against an opponent last until it is played again. A trainee's entrant contains its
    generation, so its statistics restart after an exploit. Adding the same tallies gives the same
    table to the bit, and so does restoring the rows that `add` returned and continuing from there.
    """

    def __init__(self, *, half_life_matches: float, rows: PairRows | None = None) -> None:
        """Make an empty table.

        Args:
            half_life_matches: Further matches of a pair after which a result counts half.
            rows: Function that makes the rows of a tally. None: each pair of seats is one match.

        Raises:
            ValueError: If ``half_life_matches`` is not above 0.
        """
        if not half_life_matches > 0.0:
            raise ValueError(f"half_life_matches must be above 0, got {half_life_matches!r}")
        self.half_life_matches = half_life_matches
        self._rows_of = pair_rows if rows is None else rows.of
        self._met: dict[Entrant, dict[Entrant, tuple[PairRow, ...]]] = {}
        """Rows of a pair, in order of the seats, by both entrants in either order."""
        self._generations: dict[PolicyId, list[int]] = {}
        """Generations of each policy that have played, ascending."""
        # References are weak, so that columns which no decision uses any more are not updated.
        self._followed: dict[Entrant, WeakSet[MetOpponents]] = {}

    def put(self, row: PairRow) -> None:
        """Set a stored row, replacing the one with the same entrants and seats."""
        old = self._rows(row.first, row.second)
        if not old:
            self._set((row,))
            return
        # Rows are sorted by seats, so that sums have one order and a restored table gives the same
        # bits.
        kept = [other for other in old if other.key != row.key]
        self._set(tuple(sorted((*kept, row), key=seats_of)))

    def add(self, tally: Tally) -> list[PairRow]:
        """Add the results of a tally, by pair of seats on different sides or by pair of players.

        Pairs of seats with the same two players count as one batch, so their order does not matter.
        Results of an entrant against itself carry no information and are left out.

        Returns:
            Changed rows: all rows of each pair that has played.
        """
        batches: dict[tuple[Entrant, Entrant], dict[Seats, PairRow]] = {}
        for played in self._rows_of(tally, kind="train"):
            if played.first == played.second:
                continue
            # A row has the lower entrant first, so that both views of a pair are one row.
            row = played if played.first < played.second else swapped(played)
            batches.setdefault((row.first, row.second), {})[seats_of(row)] = row
        # Half-life in matches of the pair: remaining = 2^(-new / half_life).
        changed: list[PairRow] = []
        for (first, second), batch in batches.items():
            # The whole batch decays old results at once; row by row, the order would matter.
            new = sum(num_scored(row) for row in batch.values())
            remaining = 0.5 ** (new / self.half_life_matches)
            # Results in seats without new matches decay as well: the half-life is the pair's.
            old = {seats_of(row): row for row in self._rows(first, second)}
            rows = [
                added(old.get(seats), batch.get(seats) or nothing(old[seats]), remaining=remaining)
                for seats in sorted(old.keys() | batch.keys())
            ]
            self._set(tuple(rows))
            changed += rows
        return changed

    def forget(self, entrants: Iterable[Entrant]) -> Iterator[PairRow]:
        """Remove all results of some entrants, and yield the removed rows.

        Columns of `follow` are not updated, because no decision asks about these entrants any more.
        """
        for entrant in entrants:
            for other, rows in self._pop(entrant).items():
                del self._met[other][entrant]
                yield from rows

    def fold(self, entrant: Entrant, into: Entrant) -> tuple[list[PairRow], list[PairRow]]:
        """Add the results of an entrant to those of ``into``, a later entrant.

        They decay with the later entrant's matches against the same opponent, like old results of
        that pair. Columns of `follow` are not updated: call `follow` again.

        Returns:
            Removed rows, and changed rows.
        """
        gone: list[PairRow] = []
        changed: list[PairRow] = []
        for other, rows in self._pop(entrant).items():
            del self._met[other][entrant]
            gone += rows
            if other == into:
                continue
            moved = {seats_of(row): row for row in (renamed(row, entrant, into) for row in rows)}
            kept = {seats_of(row): row for row in self._rows(into, other)}
            remaining = 0.5 ** (sum(map(num_scored, kept.values())) / self.half_life_matches)
            together = [
                added(
                    moved.get(seats), kept.get(seats) or nothing(moved[seats]), remaining=remaining
                )
                for seats in sorted(moved.keys() | kept.keys())
            ]
            self._set(tuple(together))
            changed += together
        return gone, changed

    def generations(self, policy: PolicyId) -> list[int]:
        """Return the numbers of a policy's generations that have results, ascending."""
        return [
            number
            for number in self._generations.get(policy, ())
            if self._met.get(trainee_entrant(policy, generation=number))
        ]

    def _pop(self, entrant: Entrant) -> dict[Entrant, tuple[PairRow, ...]]:
        """Remove an entrant's own entries; its entries among its opponents remain."""
        met = self._met.pop(entrant, {})
        if is_trainee(entrant):
            policy, number = policy_of_trainee(entrant)
            left = [one for one in self._generations.get(policy, ()) if one != number]
            self._generations[policy] = left
        return met

    def entrants(self) -> Iterator[Entrant]:
        """Yield all entrants that have results."""
        return (entrant for entrant, met in self._met.items() if met)

    def follow(self, entrant: Entrant) -> MetOpponents:
        """Return the opponents of an entrant as columns, kept up to date while they are referenced.

        So a decision need not scan all results again. Each caller gets its own columns, and may
        drop opponents from them (`MetOpponents.keep`).
        """
        followed = MetOpponents()
        for other, rows in self._met.get(entrant, {}).items():
            followed.put(other, rows, is_first=entrant < other)
        # Entries of former generations are removed once no decision refers to their columns.
        self._followed = {one: held for one, held in self._followed.items() if held}
        self._followed.setdefault(entrant, WeakSet()).add(followed)
        return followed

    def _rows(self, first: Entrant, second: Entrant) -> tuple[PairRow, ...]:
        met = self._met.get(first)
        return () if met is None else met.get(second, ())

    def _set(self, rows: tuple[PairRow, ...]) -> None:
        first, second = rows[0].first, rows[0].second
        for entrant in (first, second):
            if entrant not in self._met and is_trainee(entrant):
                policy, number = policy_of_trainee(entrant)
                bisect.insort(self._generations.setdefault(policy, []), number)
        self._met.setdefault(first, {})[second] = rows
        # The rows are stored under both names, so that an entrant's opponents need no scan.
        self._met.setdefault(second, {})[first] = rows
        # Columns are updated last, so that they never have results which the table has not.
        for one, other in ((first, second), (second, first)):
            for followed in self._followed.get(one, ()):
                followed.put(other, rows, is_first=one == first)
