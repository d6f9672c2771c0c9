"""Results of a whole run in columns, of which a fit on another thread can take a snapshot.

Rows are appended and never move, so a snapshot shares them with the table. A deleted result leaves
a row that readers skip.
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
"""First player, second player, and their seats."""

NUM_COUNTS = len(Counts._fields)

# 16 bits are more than any number of agents needs; with too few, keys would collide.
_SEAT_BITS = 16
_NAME_BITS = 32

CHUNK = 4096
"""Number of rows that are copied together if one of them changes while a snapshot shares them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSnapshot(Generic[E]):
    """State of a `ResultTable` at one moment; arrays that only grow are shared with the table.

    Attributes:
        names: Names; names after the first ``num_names`` are newer than the snapshot.
        positions: Position of each name, including newer names.
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
        """Return the results between some entrants, whose names are in the order given."""
        # The table's thread may have added names since; their positions are not in the snapshot.
        found = ((name, self.positions.get(name, self.num_names)) for name in entrants)
        places = {name: position for name, position in found if position < self.num_names}
        positions = list(places.values())
        is_chosen = np.zeros(self.num_names, dtype=np.bool_)
        is_chosen[positions] = True
        keys, counts = [np.zeros((0, 4), dtype=np.int64)], [np.zeros((0, NUM_COUNTS))]
        for index, chunk in enumerate(self.chunks):
            # The table's thread may have filled more rows of the last chunk since.
            own = chunk.keys[: self.num_rows - index * CHUNK]
            rows = np.flatnonzero(is_chosen[own[:, 0]] & is_chosen[own[:, 1]])
            # Deleted rows have NaN, and are left out.
            rows = rows[~np.isnan(chunk.counts[rows, 0])]
            keys.append(own[rows])
            counts.append(chunk.counts[rows])
        # Only chosen names get new positions, so that the answer does not grow with the run.
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
        links: Links to the previous row of the first and of the second name: 2 times that row, plus
            1 if the name is second there; -1 for none. int64 [CHUNK, 2].
    """

    keys: IntArray = field(default_factory=lambda: np.zeros((CHUNK, 4), dtype=np.int64))
    counts: FloatArray = field(default_factory=lambda: np.zeros((CHUNK, NUM_COUNTS)))
    links: IntArray = field(default_factory=lambda: np.full((CHUNK, 2), -1))


DELETED = Counts(math.nan, math.nan, math.nan, math.nan, math.nan)


class ResultTable(Mapping[ResultKey[E], Counts]):
    """Mapping from pair and seats to `Counts`, stored as columns. Owned by one thread.

    It supports reading, setting and deleting. `snapshot` makes a copy-on-write view for a fit on
    another thread, and `of_entrant` finds the results of one entrant; neither scans all rows.
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
        """Indices of chunks that a snapshot shares, which must be copied before a change."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ResultKey[E]]:
        return (key for key, _ in self.rows())

    def items(self) -> ItemsView[ResultKey[E], Counts]:
        """Return keys and counts, as fast as those of a dictionary."""
        return _ResultItems(self)

    def rows(self) -> Iterator[tuple[ResultKey[E], Counts]]:
        """Yield keys and counts in the order in which keys were first set."""
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
        # A pair in the other order is another row, because results are stored as they were counted.
        row = self._rows.get(_packed(i, j, seats))
        if row is None:
            row = self._append(i, j, seats)
        self._write(row, counts)

    def __delitem__(self, key: ResultKey[E]) -> None:
        first, second, seats = key
        row = self._rows.pop(_packed(self._positions[first], self._positions[second], seats))
        self._write(row, DELETED)

    def without_deleted(self) -> ResultTable[E]:
        """Return this table, or a smaller copy if more than half of its rows were deleted."""
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
        # A snapshot that shares this chunk does not read the new row, which is beyond its rows.
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
        """Return the present state of the table, which later changes do not affect."""
        # Nothing is copied here: the next change of a shared chunk copies that chunk.
        self._shared.update(range(len(self._chunks)))
        return ResultSnapshot(
            names=self._names,
            positions=self._positions,
            num_names=len(self._names),
            chunks=tuple(self._chunks),
            num_rows=self._num_rows,
        )


class _ResultItems(ItemsView[ResultKey[E], Counts]):
    """Items of a `ResultTable`, which iterate over rows without a look-up for each."""

    def __init__(self, table: ResultTable[E]) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[ResultKey[E], Counts]]:
        return self._table.rows()


def _packed(first: int, second: int, seats: tuple[int, int]) -> int:
    names = (first << _NAME_BITS) | second
    return (((names << _SEAT_BITS) | seats[0]) << _SEAT_BITS) | seats[1]
