"""Results of a whole run, kept so that a fit on another thread takes what it needs.

Rows come at the end and stay where they are, so a snapshot shares them with the table. A result
that is deleted leaves a row that nobody is shown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, ItemsView, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic

import numpy as np

from populations.ratings.model import E
from populations.ratings.results import Counts, FloatArray, IntArray, ResultColumns

ResultKey = tuple[E, E, tuple[int, int]]
"""First, second, and their seats."""

NUM_COUNTS = len(Counts._fields)

# Far more than agents: with too few, results of other seats would have the same key.
_SEAT_BITS = 16
_NAME_BITS = 32

CHUNK = 4096
"""Rows that are copied together where a snapshot has them and one of them changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSnapshot(Generic[E]):
    """State of a `ResultTable` at one moment; arrays that only grow are shared with the table.

    Attributes:
        names: Names; those after the first ``num_names`` came later.
        positions: Position of each name; newer ones included.
        num_names: Number of names at that moment.
        chunks: Rows, `CHUNK` in each.
        num_rows: Number of rows at that moment.
    """

    names: list[E]
    positions: Mapping[E, int]
    num_names: int
    chunks: tuple[_Chunk, ...]
    num_rows: int

    def select(self, entrants: Collection[E]) -> ResultColumns[E]:
        """Return the results between some entrants, which come in the order that is given."""
        # The owner's thread may have added names since; their positions are beyond the snapshot's.
        found = ((name, self.positions.get(name, self.num_names)) for name in entrants)
        places = {name: position for name, position in found if position < self.num_names}
        positions = list(places.values())
        is_chosen = np.zeros(self.num_names, dtype=np.bool_)
        is_chosen[positions] = True
        keys, counts = [np.zeros((0, 4), dtype=np.int64)], [np.zeros((0, NUM_COUNTS))]
        for index, chunk in enumerate(self.chunks):
            # The owner may have filled more rows of the last chunk since.
            own = chunk.keys[: self.num_rows - index * CHUNK]
            rows = np.flatnonzero(is_chosen[own[:, 0]] & is_chosen[own[:, 1]])
            # Rows that were deleted are NaN and are left out.
            rows = rows[~np.isnan(chunk.counts[rows, 0])]
            keys.append(own[rows])
            counts.append(chunk.counts[rows])
        # Only names that are chosen get a place, so that what is handed on does not grow with the
        # run.
        renamed = np.zeros(self.num_names, dtype=np.int64)
        renamed[positions] = np.arange(len(positions))
        chosen, found_counts = np.concatenate(keys), np.concatenate(counts)
        return ResultColumns(
            entrants=tuple(places),
            first=renamed[chosen[:, 0]],
            second=renamed[chosen[:, 1]],
            seats=chosen[:, 2:],
            counts=found_counts[:, :3],
            sums=found_counts[:, 3:],
        )


@dataclass(slots=True)
class _Chunk:
    """Some rows of a `ResultTable`.

    Attributes:
        keys: Positions of first and second among the names, and their seats. int64 [CHUNK, 4].
        counts: `Counts` of the first. float64 [CHUNK, 5].
        links: Previous rows of the first and of the second: twice the row before with that name,
            plus 1 if it is second in it; -1 for none. int64 [CHUNK, 2].
    """

    keys: IntArray = field(default_factory=lambda: np.zeros((CHUNK, 4), dtype=np.int64))
    counts: FloatArray = field(default_factory=lambda: np.zeros((CHUNK, NUM_COUNTS)))
    links: IntArray = field(default_factory=lambda: np.full((CHUNK, 2), -1))


DELETED = Counts(math.nan, math.nan, math.nan, math.nan, math.nan)


class ResultTable(Mapping[ResultKey[E], Counts]):
    """`Counts` by pair and seats, kept as columns. Owned by one thread.

    A mapping to read, to set and to delete from. `snapshot` takes what a fit needs for another
    thread, and `of_entrant` finds the results of one entrant, both without looking at all others.
    """

    def __init__(self) -> None:
        self._positions: dict[E, int] = {}
        self._names: list[E] = []
        self._newest: list[int] = []
        """Link to the newest row of each name, as in `_Chunk`."""
        self._rows: dict[int, int] = {}
        """Rows by packed key."""
        self._num_rows = 0
        """Number of all rows, deleted ones included."""
        self._chunks: list[_Chunk] = []
        self._shared: set[int] = set()
        """Chunks that a snapshot has."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ResultKey[E]]:
        return (key for key, _ in self.rows())

    def items(self) -> ItemsView[ResultKey[E], Counts]:
        """Keys and counts, as fast as those of a dictionary."""
        return _ResultItems(self)

    def rows(self) -> Iterator[tuple[ResultKey[E], Counts]]:
        """Keys and counts, each once, in order of first setting."""
        names = self._names
        for index, chunk in enumerate(self._chunks):
            size = self._num_rows - index * CHUNK
            keys, counts = chunk.keys[:size].tolist(), chunk.counts[:size].tolist()
            for (first, second, a, b), numbers in zip(keys, counts, strict=True):
                if not math.isnan(numbers[0]):
                    yield (names[first], names[second], (a, b)), Counts(*numbers)

    def of_entrant(self, entrant: E) -> Iterator[tuple[ResultKey[E], Counts]]:
        """Yield keys and counts of the results of one entrant, the newest pair first."""
        position = self._positions.get(entrant)
        link = -1 if position is None else self._newest[position]
        while link >= 0:
            chunk, place = self._place(link // 2)
            first, second, a, b = chunk.keys[place].tolist()
            counts = Counts(*chunk.counts[place].tolist())
            if not math.isnan(counts.wins):
                yield (self._names[first], self._names[second], (a, b)), counts
            link = int(chunk.links[place, link % 2])

    def __getitem__(self, key: ResultKey[E]) -> Counts:
        first, second, seats = key
        row = self._rows[_packed(self._positions[first], self._positions[second], seats)]
        chunk, place = self._place(row)
        return Counts(*chunk.counts[place].tolist())

    def __setitem__(self, key: ResultKey[E], counts: Counts) -> None:
        first, second, seats = key
        i, j = self._position(first), self._position(second)
        # The other order of a pair is another row: results are kept as they were counted.
        row = self._rows.get(_packed(i, j, seats))
        if row is None:
            row = self._append(i, j, seats)
        self._write(row, counts)

    def __delitem__(self, key: ResultKey[E]) -> None:
        first, second, seats = key
        row = self._rows.pop(_packed(self._positions[first], self._positions[second], seats))
        self._write(row, DELETED)

    def without_deleted(self) -> ResultTable[E]:
        """Return itself, or a table of the same results where most of this one's were deleted."""
        if self._num_rows <= 2 * len(self) + CHUNK:
            return self
        found: ResultTable[E] = ResultTable()
        for key, counts in self.rows():
            found[key] = counts
        return found

    def _write(self, row: int, counts: Counts) -> None:
        index, place = divmod(row, CHUNK)
        if index in self._shared:
            # A snapshot has the counts; keys never change, nor does it look at links.
            self._chunks[index] = replace(
                self._chunks[index], counts=self._chunks[index].counts.copy()
            )
            self._shared.discard(index)
        self._chunks[index].counts[place] = counts

    def _append(self, first: int, second: int, seats: tuple[int, int]) -> int:
        row = self._rows[_packed(first, second, seats)] = self._num_rows
        self._num_rows += 1
        if row == len(self._chunks) * CHUNK:
            self._chunks.append(_Chunk())
        chunk, place = self._place(row)
        # A snapshot that shares this chunk reads no row from its own number of rows on.
        chunk.keys[place] = (first, second, *seats)
        for side, position in enumerate((first, second)):
            chunk.links[place, side] = self._newest[position]
            self._newest[position] = 2 * row + side
        return row

    def _position(self, name: E) -> int:
        position = self._positions.setdefault(name, len(self._names))
        if position == len(self._names):
            self._names.append(name)
            self._newest.append(-1)
        return position

    def _place(self, row: int) -> tuple[_Chunk, int]:
        return self._chunks[row // CHUNK], row % CHUNK

    def snapshot(self) -> ResultSnapshot[E]:
        """All of it, as it is now. Rows come at the end and never change what they are about."""
        # Nothing is copied here: the first change of a chunk after it copies that chunk.
        self._shared.update(range(len(self._chunks)))
        return ResultSnapshot(
            names=self._names,
            positions=self._positions,
            num_names=len(self._names),
            chunks=tuple(self._chunks),
            num_rows=self._num_rows,
        )


class _ResultItems(ItemsView[ResultKey[E], Counts]):
    """Rows of a `ResultTable`, without a look-up for each row."""

    def __init__(self, table: ResultTable[E]) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[ResultKey[E], Counts]]:
        return self._table.rows()


def _packed(first: int, second: int, seats: tuple[int, int]) -> int:
    names = (first << _NAME_BITS) | second
    return (((names << _SEAT_BITS) | seats[0]) << _SEAT_BITS) | seats[1]
