"""Results as rating models take them: merged, checked, and in columns where there are many.

Shapes: M results.
"""

from __future__ import annotations

import math
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
import numpy.typing as npt

from arena.types import Entrant
from populations.core import E, Result

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Rated = tuple[str, Entrant]
"""Population and entrant: ``bot:random`` among predators is not ``bot:random`` among prey."""

POINTS = np.array([1.0, 0.5, 0.0])
"""Scores of a win, a draw and a loss."""

ResultKey = tuple[E, E, tuple[int, int]]
"""First, second, and their seats."""


def merge_results(results: Iterable[Result[E]]) -> tuple[Result[E], ...]:
    """Add up results of the same entrants in the same seats.

    Returns:
        One result for each pair of entrants and seats, in an order that does not depend on the
        order of ``results``; the first seat is the lower one.

    Raises:
        ValueError: If a count is negative or not finite, or an entrant plays itself.
    """
    # repr, because entrants need not be comparable; it is the same in every process.
    merged: dict[tuple[E, E, tuple[int, int]], list[float]] = {}
    for result in results:
        _check(result)
        forward = (result.seats, repr(result.first)) <= (result.seats[::-1], repr(result.second))
        first, second = result.first, result.second
        seats, outcome = result.seats, (result.wins, result.draws, result.losses)
        if not forward:
            first, second, seats, outcome = second, first, seats[::-1], outcome[::-1]
        counts = merged.setdefault((first, second, seats), [0.0, 0.0, 0.0])
        for index, count in enumerate(outcome):
            counts[index] += count
    ordered = sorted(merged, key=lambda key: (repr(key[0]), repr(key[1]), key[2]))
    return tuple(_result(*key, counts=merged[key]) for key in ordered)


def _result(first: E, second: E, seats: tuple[int, int], *, counts: list[float]) -> Result[E]:
    wins, draws, losses = counts
    return Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)


def _check(result: Result[E]) -> None:
    counts = (result.wins, result.draws, result.losses)
    if any(not math.isfinite(count) or count < 0.0 for count in counts):
        raise ValueError(f"wins, draws and losses must be finite and at least 0, got {counts!r}")
    if result.first == result.second:
        raise ValueError(f"an entrant cannot play itself, got {result.first!r} twice")


def matches_by_entrant(results: Iterable[Result[E]]) -> Mapping[E, float]:
    """How many matches each entrant has played."""
    matches: dict[E, float] = {}
    for result in results:
        for entrant in (result.first, result.second):
            played = result.wins + result.draws + result.losses
            matches[entrant] = matches.get(entrant, 0.0) + played
    return matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumns(Generic[E]):
    """Results as arrays: what a fit of many takes without making an object of each.

    Attributes:
        entrants: Names.
        first: Positions of names. int64 [M].
        second: As ``first``.
        seats: Of first and second. int64 [M, 2].
        counts: Wins, draws and losses of ``first``. float64 [M, 3].
    """

    entrants: tuple[E, ...]
    first: IntArray
    second: IntArray
    seats: IntArray
    counts: FloatArray

    def __len__(self) -> int:
        """How many results there are."""
        return len(self.first)

    @property
    def matches(self) -> FloatArray:
        """How many each result has. float64 [M]."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def scores(self) -> FloatArray:
        """Sums of the scores of ``first``, a draw half. float64 [M]."""
        return np.asarray(self.counts @ POINTS)

    @property
    def squares(self) -> FloatArray:
        """Sums of the squared scores of ``first``. float64 [M]."""
        return np.asarray(self.counts @ POINTS**2)

    def where(self, wanted: npt.NDArray[np.bool_]) -> ResultColumns[E]:
        """Some of the results: bool [M]."""
        return replace(
            self,
            first=self.first[wanted],
            second=self.second[wanted],
            seats=self.seats[wanted],
            counts=self.counts[wanted],
        )

    def __iter__(self) -> Iterator[Result[E]]:
        """One result after the other."""
        for i, j, (a, b), (wins, draws, losses) in zip(
            self.first.tolist(),
            self.second.tolist(),
            self.seats.tolist(),
            self.counts.tolist(),
            strict=True,
        ):
            first, second = self.entrants[i], self.entrants[j]
            yield Result(
                first=first, second=second, seats=(a, b), wins=wins, draws=draws, losses=losses
            )


def result_columns(results: Iterable[Result[E]]) -> ResultColumns[E]:
    """Results as columns, as they are."""
    if isinstance(results, ResultColumns):
        return results
    listed = list(results)
    position: dict[E, int] = {}
    for result in listed:
        position.setdefault(result.first, len(position))
        position.setdefault(result.second, len(position))
    pairs = [(position[r.first], position[r.second]) for r in listed]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    counts = [(r.wins, r.draws, r.losses) for r in listed]
    return ResultColumns(
        entrants=tuple(position),
        first=both[:, 0],
        second=both[:, 1],
        seats=np.array([r.seats for r in listed], dtype=np.int64).reshape(-1, 2),
        counts=np.array(counts, dtype=np.float64).reshape(-1, 3),
    )


def merge_columns(columns: ResultColumns[E], *, entrants: tuple[E, ...]) -> ResultColumns[E]:
    """Add up results of the same entrants in the same seats, in the order of ``entrants``.

    Args:
        columns: In any order.
        entrants: All names in ``columns``, and maybe more: those of the answer.

    Raises:
        ValueError: If a count is negative or not finite, or an entrant plays itself.
    """
    _check_columns(columns)
    position = {entrant: i for i, entrant in enumerate(entrants)}
    renamed = np.array([position[entrant] for entrant in columns.entrants], dtype=np.int64)
    first, second = renamed[columns.first], renamed[columns.second]
    seats = columns.seats
    # The lower seat comes first; where seats are equal, the first name.
    turned = (seats[:, 0] > seats[:, 1]) | ((seats[:, 0] == seats[:, 1]) & (first > second))
    first, second = np.where(turned, second, first), np.where(turned, first, second)
    seats = np.where(turned[:, None], seats[:, ::-1], seats)
    counts = np.where(turned[:, None], columns.counts[:, ::-1], columns.counts)
    order = np.lexsort((seats[:, 1], seats[:, 0], second, first))
    key = np.stack([first, second, seats[:, 0], seats[:, 1]], axis=1)[order]
    starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]).any(axis=1)][: len(key)])
    merged = key[starts]
    return ResultColumns(
        entrants=entrants,
        first=merged[:, 0],
        second=merged[:, 1],
        seats=merged[:, 2:],
        counts=np.add.reduceat(counts[order], starts, axis=0) if len(starts) else counts,
    )


def _check_columns(columns: ResultColumns[E]) -> None:
    bad = ~(np.isfinite(columns.counts) & (columns.counts >= 0.0)).all(axis=1)
    if bad.any():
        counts = tuple(columns.counts[bad][0].tolist())
        raise ValueError(f"wins, draws and losses must be finite and at least 0, got {counts!r}")
    alone = columns.first == columns.second
    if alone.any():
        entrant = columns.entrants[int(columns.first[alone][0])]
        raise ValueError(f"an entrant cannot play itself, got {entrant!r} twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSnapshot(Generic[E]):
    """What was in a `ResultTable` at one moment.

    Attributes:
        entrants: Names.
        keys: Positions of first and second among the names, and their seats. int64 [M, 4].
        counts: Wins, draws and losses of the first. float64 [M, 3].
    """

    entrants: tuple[E, ...]
    keys: IntArray
    counts: FloatArray

    def select(self, entrants: Collection[E]) -> ResultColumns[E]:
        """The results between some entrants."""
        names = self.entrants
        is_chosen = np.fromiter((name in entrants for name in names), dtype=bool, count=len(names))
        rows = np.flatnonzero(is_chosen[self.keys[:, 0]] & is_chosen[self.keys[:, 1]])
        # Only names that are chosen, so that what is handed on does not grow with the run.
        renamed = np.cumsum(is_chosen) - 1
        return ResultColumns(
            entrants=tuple(name for name, chosen in zip(names, is_chosen, strict=True) if chosen),
            first=renamed[self.keys[rows, 0]],
            second=renamed[self.keys[rows, 1]],
            seats=self.keys[rows, 2:],
            counts=self.counts[rows],
        )


_SEAT_BITS = 8
_NAME_BITS = 32


class ResultTable(Mapping[ResultKey[E], tuple[float, float, float]]):
    """Wins, draws and losses by pair and seats, kept as columns. Owned by one thread.

    A mapping to read and to set; `snapshot` takes what a fit needs, for another thread, in a few
    milliseconds, also out of hundreds of thousands of rows.
    """

    def __init__(self) -> None:
        self._position: dict[E, int] = {}
        self._rows: dict[int, int] = {}
        """Rows by packed key."""
        self._keys = np.zeros((64, 4), dtype=np.int64)
        self._counts = np.zeros((64, 3))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ResultKey[E]]:
        names = tuple(self._position)
        for first, second, a, b in self._keys[: len(self)].tolist():
            yield names[first], names[second], (a, b)

    def items(self) -> ItemsView[ResultKey[E], tuple[float, float, float]]:
        """Keys and counts, as fast as those of a dictionary."""
        return _ResultItems(self)

    def rows(self) -> Iterator[tuple[ResultKey[E], tuple[float, float, float]]]:
        """Keys and counts, each once, in order of first setting."""
        names = tuple(self._position)
        keys, counts = self._keys[: len(self)].tolist(), self._counts[: len(self)].tolist()
        for (first, second, a, b), (wins, draws, losses) in zip(keys, counts, strict=True):
            yield (names[first], names[second], (a, b)), (wins, draws, losses)

    def __getitem__(self, key: ResultKey[E]) -> tuple[float, float, float]:
        first, second, seats = key
        row = self._rows[_packed(self._position[first], self._position[second], seats)]
        wins, draws, losses = self._counts[row].tolist()
        return wins, draws, losses

    def __setitem__(self, key: ResultKey[E], counts: Iterable[float]) -> None:
        first, second, seats = key
        i = self._position.setdefault(first, len(self._position))
        j = self._position.setdefault(second, len(self._position))
        row = self._rows.setdefault(_packed(i, j, seats), len(self._rows))
        if row == len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._keys[row] = (i, j, *seats)
        self._counts[row] = tuple(counts)

    def snapshot(self) -> ResultSnapshot[E]:
        """All of it, as it is now. Rows come at the end and never change what they are about."""
        return ResultSnapshot(
            entrants=tuple(self._position),
            keys=self._keys[: len(self)],
            counts=self._counts[: len(self)].copy(),
        )


class _ResultItems(ItemsView[ResultKey[E], tuple[float, float, float]]):
    """Of a `ResultTable`, without a look-up for each row."""

    def __init__(self, table: ResultTable[E]) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[ResultKey[E], tuple[float, float, float]]]:
        return self._table.rows()


def _packed(first: int, second: int, seats: tuple[int, int]) -> int:
    names = (first << _NAME_BITS) | second
    return (((names << _SEAT_BITS) | seats[0]) << _SEAT_BITS) | seats[1]
