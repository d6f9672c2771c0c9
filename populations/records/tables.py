"""Tables of frozen rows, in memory and in SQLite, with one mapping between the two.

A field of a row is a column: numbers and text are native values, a tuple of floats is packed
float64 (a fit has many), everything else is JSON text. Rows are read in the order in which their
keys were first written, which is also the order of the tables in memory.

Each stored row has a seal, a checksum of its values, because a flipped bit in a number or a name
could pass for a valid value. A row is read only if its seal matches.
"""

from __future__ import annotations

import sqlite3
import typing
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import msgpack
import msgspec

from arena.types import AssignmentId, Entrant, PlayerId, PolicyId, is_trainee
from populations.records.aggregates import PairKey, PairRow, RecordKey, RecordRow, Row
from populations.records.columns import Column, Value, column_of
from populations.records.rows import (
    AlertRow,
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    PostponedRow,
    RatingsRow,
    RunRow,
    TallyRow,
)

KeyT = TypeVar("KeyT")
RowT = TypeVar("RowT", bound=Row)


SEAL = "seal"
"""Name of the column of a row's seal, which is the last column of every table."""


def seal_of(values: Sequence[Value]) -> int:
    """Return the checksum of a row's values: a signed 32-bit number."""
    # In msgpack 1, 1.0, "1" and NULL have different bytes, so the seal tells them apart.
    return zlib.crc32(msgpack.packb(values)) - 2**31


def _listed(names: Sequence[str]) -> str:
    """Return column names as a list in SQL."""
    # Names are quoted, because ``index`` and ``key`` are keywords of SQL.
    return ", ".join(f'"{name}"' for name in names)


_SEAL_COLUMN = Column(name=SEAL, declaration="INTEGER NOT NULL", encode=int)


class SqlTable(typing.Generic[RowT]):
    """Table of one type of rows, with its SQL statements. Immutable."""

    def __init__(
        self,
        name: str,
        row_type: type[RowT],
        *,
        key: str | tuple[str, ...] | None,
        by: Mapping[str, Callable[[RowT], Collection[Hashable]]] | None = None,
        first: Mapping[str, Callable[[RowT], Hashable]] | None = None,
    ) -> None:
        """Derive the SQL of a row type.

        Args:
            name: Name of the SQL table.
            row_type: Row type, whose fields are the columns.
            key: Columns of the primary key; None for a table of at most one row.
            by: Secondary keys of rows in memory, by name: functions from a row to the key's values.
            first: Secondary keys for `Table.first`: functions from a row to the key's one value.
        """
        self.by = by or {}
        self.first = first or {}
        self.name = name
        self.row_type = row_type
        self.key = key if isinstance(key, str) else ""
        """Column of the primary key; empty if the key has several columns or none."""
        self._columns = tuple(
            column_of(own.name, own.type) for own in msgspec.structs.fields(row_type)
        )
        self.names = tuple(column.name for column in self._columns)
        # Most columns need no decoding, so each of the many rows decodes only the listed ones.
        self._decoded = [
            (index, column.decode)
            for index, column in enumerate(self._columns)
            if column.decode is not None
        ]
        self._tagged = [
            (index, column.decode_tagged, self.names.index("kind"))
            for index, column in enumerate(self._columns)
            if column.decode_tagged is not None
        ]
        keys = (key,) if isinstance(key, str) else key or ()
        self.key_of: Callable[[RowT], Any] = attrgetter(*keys) if keys else lambda row: None
        """Return the key of a row among the rows of its table in memory."""
        changes = ", ".join(
            f'"{name}" = excluded."{name}"' for name in self.names if name not in keys
        )
        changes += f", {SEAL} = excluded.{SEAL}"
        listed = _listed((*self.names, SEAL))
        self.select = f"SELECT {listed} FROM {name}"
        """All columns and the seal, without a condition."""
        places = ", ".join("?" * (len(self.names) + 1))
        # In a STRICT table SQLite refuses values of other types, so native columns need no check.
        self.create = f"CREATE TABLE {name} ({self._declarations(keys)}) STRICT"
        if not keys:
            # A table without a key gets a constant one, so that a second row replaces the first.
            keys, listed, places = ("singleton",), f"{listed}, singleton", f"{places}, 1"
        self._key_columns = [column for column in self._columns if column.name in keys]
        conditions = " AND ".join(f'"{column.name}" = ?' for column in self._key_columns)
        self.delete = f"DELETE FROM {name} WHERE {conditions}"
        # An upsert preserves the rowid and so the order of first writing; REPLACE would not.
        self.upsert = (
            f"INSERT INTO {name} ({listed}) VALUES ({places}) ON CONFLICT ({_listed(keys)}) "
            f"DO UPDATE SET {changes}"
        )

    def _declarations(self, keys: tuple[str, ...]) -> str:
        only = keys[0] if len(keys) == 1 else None  # an integer key declared here is the rowid
        declared = [
            f'"{column.name}" {column.declaration}'
            + (" PRIMARY KEY" if column.name == only else "")
            for column in (*self._columns, _SEAL_COLUMN)
        ]
        if not keys:
            declared.append("singleton INTEGER PRIMARY KEY CHECK (singleton = 1)")
        elif only is None:
            declared.append(f"PRIMARY KEY ({_listed(keys)})")
        return ", ".join(declared)

    def encode(self, row: RowT) -> tuple[Value, ...]:
        """Return the row's values and its seal, in the order of ``upsert``.

        Raises:
            ValueError: If a number is not finite or does not fit 64 bits.
        """
        values = [column.encode(getattr(row, column.name)) for column in self._columns]
        return (*values, seal_of(values))

    def unsealed(self, stored: Sequence[Value]) -> Sequence[Value]:
        """Check a row's seal, and return the row's values without it.

        Args:
            stored: Values in the order of ``select``.

        Raises:
            ValueError: If the seal does not match the values.
        """
        values, seal = stored[:-1], stored[-1]
        if seal != seal_of(values):
            raise ValueError("its seal is that of other values")
        return values

    def encode_key(self, row: RowT) -> tuple[Value, ...]:
        """Return the values of a row's key in the order of ``delete``."""
        return tuple(column.encode(getattr(row, column.name)) for column in self._key_columns)

    def values_of(self, stored: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return a row's values in the order of ``names``.

        Raises:
            ValueError: If a column is missing.
        """
        missing = [name for name in self.names if name not in stored]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing")
        return tuple(stored[name] for name in self.names)

    def decode(self, values: Sequence[Value]) -> RowT:
        """Return the row that has some stored values, given in the order of ``select``, no seal.

        Raises:
            ValueError: If a value is damaged.
            TypeError: If a value is damaged.
        """
        decoded = list(values)
        for index, decode in self._decoded:
            decoded[index] = decode(decoded[index])
        for index, decode_tagged, kind in self._tagged:
            decoded[index] = decode_tagged(decoded[index], decoded[kind])
        return self.row_type(**dict(zip(self.names, decoded, strict=True)))


class Table(dict[KeyT, RowT]):
    """Rows of one kind in memory, by key, in the order of first writing. Owned by one thread.

    Rows change only by item assignment and ``del``, which also update the indexes of secondary
    keys. An index is built at the first call of `by` or `first`, so an unused one costs nothing.
    """

    __slots__ = ("_firsts", "_groups", "kind")

    def __init__(self, kind: SqlTable[RowT], rows: Collection[RowT] = ()) -> None:
        super().__init__(zip(map(kind.key_of, rows), rows, strict=True))
        self.kind = kind
        self._groups: dict[str, dict[Hashable, dict[KeyT, RowT]]] = {}
        self._firsts: dict[str, dict[Hashable, RowT]] = {}

    def __setitem__(self, key: KeyT, row: RowT) -> None:
        if self._groups or self._firsts:
            self._file(key, self.get(key), row)
        super().__setitem__(key, row)

    def __delitem__(self, key: KeyT) -> None:
        self._file(key, self[key], None)
        super().__delitem__(key)

    def copy(self) -> Table[KeyT, RowT]:
        """Return a new table with the same rows."""
        return Table(self.kind, self.values())

    def by(self, name: str) -> dict[Any, dict[KeyT, RowT]]:
        """Return the rows for each value of a secondary key, by key, in the table's order.

        Every value in the mapping has at least one row. Do not change the mapping; it is valid
        until a row is put or deleted.
        """
        groups = self._groups.get(name)
        if groups is None:
            groups, values_of = self._groups.setdefault(name, {}), self.kind.by[name]
            for key, row in self.items():
                for value in values_of(row):
                    groups.setdefault(value, {})[key] = row
        return groups

    def first(self, name: str) -> Mapping[Any, RowT]:
        """Return the first row in the table's order for each value of a secondary key.

        The mapping is live: it grows with the table until a row is deleted or its value changes.
        Another thread may read it.
        """
        firsts = self._firsts.get(name)
        if firsts is None:
            firsts, value_of = self._firsts.setdefault(name, {}), self.kind.first[name]
            for row in self.values():
                firsts.setdefault(value_of(row), row)
        return firsts

    def _file(self, key: KeyT, old: RowT | None, new: RowT | None) -> None:
        for name, groups in list(self._groups.items()):
            values_of = self.kind.by[name]
            before = () if old is None else values_of(old)
            after = () if new is None else values_of(new)
            for value in before:
                if value not in after:
                    del groups[value][key]
                    if not groups[value]:
                        del groups[value]
            if old is not None and not set(before).issuperset(after):
                # The row's place among older rows of its new value is unknown, so the next call of
                # `by` builds the index anew.
                del self._groups[name]
            elif new is not None:
                for value in after:
                    groups.setdefault(value, {})[key] = new
        for name, firsts in list(self._firsts.items()):
            value_of = self.kind.first[name]
            if new is None or (old is not None and value_of(old) != value_of(new)):
                # The next call of `first` builds the index anew, as another row may be first now.
                del self._firsts[name]
            elif firsts.setdefault(value_of(new), new) is old:
                firsts[value_of(new)] = new

    def restore(self, former: Mapping[KeyT, RowT | None], order: Iterable[KeyT] | None) -> None:
        """Undo changes of some rows.

        Args:
            former: Rows before the changes, by key; None: the table had no such row.
            order: All keys before the changes, in order; None: no row was deleted.
        """
        rows = {**self, **former}
        super().clear()
        super().update((key, row) for key in order or rows if (row := rows[key]) is not None)
        self._groups.clear()
        self._firsts.clear()


def put_after(rows: dict[KeyT, RowT], count: int) -> list[RowT]:
    """Return the rows of a table after the first ``count``, in order.

    The time depends on the number of rows returned, not on ``count``.
    """
    # A replaced row stays in its place in the dictionary, so only new keys are at the end.
    newest = list(islice(reversed(rows.values()), len(rows) - count))
    return newest[::-1]


RUN = SqlTable("run", RunRow, key=None)
POLICIES = SqlTable(
    "policies",
    PolicyRow,
    key="policy",
    by={
        "inactive": lambda row: () if row.state == "active" else (row.state,),
        "pending": lambda row: (row.population,) if row.pending else (),
        "role": lambda row: ((row.population, row.role),),
    },
)
POSTPONED = SqlTable("postponed", PostponedRow, key="policy")
CHECKPOINTS = SqlTable(
    "checkpoints",
    CheckpointRow,
    key="key",
    by={"present": lambda row: (row.policy,) if row.state == "present" else ()},
    first={
        "weights": lambda row: row.weights_digest,
        "generation": lambda row: (row.policy, row.generation),
    },
)
GHOSTS = SqlTable(
    "ghosts",
    GhostRow,
    key="player",
    by={
        "kept": lambda row: () if row.doomed else (row.policy,),
        # Keys are population and weights digest, as evaluation results name their entrants.
        "weights": lambda row: () if row.doomed else ((row.population, row.weights_digest),),
    },
)
GENERATIONS = SqlTable(
    "generations",
    GenerationRow,
    key="entrant",
    by={"policy": lambda row: (row.policy,), "population": lambda row: (row.population,)},
)
ASSIGNMENTS = SqlTable(
    "assignments",
    AssignmentRow,
    key="assignment_id",
    by={"trained": lambda row: row.trained},
)
TALLIES = SqlTable("tallies", TallyRow, key="sequence")
RECORDS = SqlTable(
    "records",
    RecordRow,
    key=("population", "entrant"),
    # A row of a generation sums up removed weights, which are not rated any more.
    by={"rated": lambda row: () if is_trainee(row.entrant) else (True,)},
)
PAIRS = SqlTable("pairs", PairRow, key=("kind", "first", "second", "first_seat", "second_seat"))
RATINGS = SqlTable("ratings", RatingsRow, key="population")
ALERTS = SqlTable("alerts", AlertRow, key=("name", "subject"))
EVENTS = SqlTable("events", EventRow, key="sequence")
ARCHIVES = SqlTable("archives", ArchiveRow, key="number")
GAMES = SqlTable("games", GameRow, key="game")

_BY_TYPE: dict[type, SqlTable[Any]] = {
    table.row_type: table
    for table in (
        RUN,
        POLICIES,
        POSTPONED,
        CHECKPOINTS,
        GHOSTS,
        GENERATIONS,
        ASSIGNMENTS,
        TALLIES,
        RECORDS,
        PAIRS,
        RATINGS,
        ALERTS,
        EVENTS,
        ARCHIVES,
        GAMES,
    )
}

TABLES: tuple[SqlTable[Any], ...] = tuple(_BY_TYPE.values())

KEPT = tuple(table for table in TABLES if table not in (RUN, TALLIES, EVENTS, ARCHIVES))
"""Tables whose rows are all in memory; `Tables` has a field of the same name for each."""

ARCHIVED: tuple[SqlTable[EventRow] | SqlTable[AssignmentRow] | SqlTable[TallyRow], ...] = (
    EVENTS,
    ASSIGNMENTS,
    TALLIES,
)
"""Tables of details, whose old rows move to the archive; `ArchiveRow` has a field for each."""


@dataclass(slots=True, kw_only=True)
class Tables:
    """All rows in memory, one table for each kind: the controller's state.

    Attributes:
        run: The run itself.
        policies: All policies.
        postponed: PBT decisions that are due but postponed, the longest postponed first.
        checkpoints: All recorded checkpoints; deleted ones while something refers to them.
        ghosts: All ghosts.
        generations: All generations, by entrant.
        assignments: Open (queued) assignments.
        records: Evaluation matches of each entrant, by population and entrant.
        pairs: Results of all pairs of entrants, by kind, entrants and seats.
        ratings: Last fit of each population.
        alerts: Active alerts, in the order in which they were raised.
        games: Retained evaluation games, by id.
        num_events: Number of events, which is also the sequence of the last one.
        num_tallies: Number of tallies, which is also the sequence of the last one.
        last_evaluation_sequence: Sequence of the last evaluation tally; 0 without one.
    """

    run: RunRow
    policies: Table[PolicyId, PolicyRow] = field(default_factory=partial(Table, POLICIES))
    postponed: Table[PolicyId, PostponedRow] = field(default_factory=partial(Table, POSTPONED))
    checkpoints: Table[str, CheckpointRow] = field(default_factory=partial(Table, CHECKPOINTS))
    ghosts: Table[PlayerId, GhostRow] = field(default_factory=partial(Table, GHOSTS))
    generations: Table[Entrant, GenerationRow] = field(default_factory=partial(Table, GENERATIONS))
    assignments: Table[AssignmentId, AssignmentRow] = field(
        default_factory=partial(Table, ASSIGNMENTS)
    )
    records: Table[RecordKey, RecordRow] = field(default_factory=partial(Table, RECORDS))
    pairs: Table[PairKey, PairRow] = field(default_factory=partial(Table, PAIRS))
    ratings: Table[str, RatingsRow] = field(default_factory=partial(Table, RATINGS))
    alerts: Table[tuple[str, str], AlertRow] = field(default_factory=partial(Table, ALERTS))
    games: Table[str, GameRow] = field(default_factory=partial(Table, GAMES))
    num_events: int = 0
    num_tallies: int = 0
    last_evaluation_sequence: int = 0
    _former: dict[str, dict[Any, Row | None]] = field(init=False, repr=False, compare=False)
    """Rows that have changed since `begin`, as they were then, by table and key; None: no row."""
    _orders: dict[str, list[Any]] = field(init=False, repr=False, compare=False)
    """All keys before the first deletion since `begin`, for each table with a deletion."""
    _counts: tuple[RunRow, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Mark the state to which `undo` returns; called before the changes of an event."""
        self._former, self._orders = {}, {}
        counts = self.num_events, self.num_tallies, self.last_evaluation_sequence
        self._counts = (self.run, *counts)

    def undo(self) -> None:
        """Undo all changes since `begin`: restore rows, their order, and counts."""
        self.run, self.num_events, self.num_tallies, self.last_evaluation_sequence = self._counts
        for name, former in self._former.items():
            getattr(self, name).restore(former, self._orders.get(name))
        self.begin()

    def had(self, row: Row) -> bool:
        """Return whether a row that has changed since `begin` existed then, by its key."""
        kind = table_of(row)
        return self._former[kind.name][kind.key_of(row)] is not None

    def put(self, row: Row) -> None:
        """Apply to memory a row that is also written to the journal."""
        match row:
            case RunRow():
                self.run = row
            case EventRow():
                self.num_events = row.sequence
            case TallyRow():
                # Tallies are not kept in memory: only their sums are, as records and pairs.
                self.num_tallies = row.sequence
                if row.kind == "evaluate":
                    self.last_evaluation_sequence = row.sequence
            case Deletion(row=gone):
                self._change(gone, None)
            case AssignmentRow() if row.status != "queued":
                # An assignment leaves memory once it has ended.
                if row.assignment_id in self.assignments:
                    self._change(row, None)
            case _:
                self._change(row, row)

    def _change(self, row: Row, new: Row | None) -> None:
        kind = table_of(row)
        name, key = kind.name, kind.key_of(row)
        table: Table[Any, Row] = getattr(self, name)
        self._former.setdefault(name, {}).setdefault(key, table.get(key))
        if new is not None:
            table[key] = new
            return
        if name not in self._orders:
            self._orders[name] = list(table)
        del table[key]


SCHEMA = (
    *(table.create for table in TABLES),
    # With this index a resume finds the few open assignments among all of the run.
    "CREATE INDEX assignments_status ON assignments (status)",
)


def table_of(row: RowT) -> SqlTable[RowT]:
    """Return the table of a row."""
    return _BY_TYPE[type(row)]


def seal_rows(connection: sqlite3.Connection) -> None:
    """Recompute the seals of all rows, in the caller's transaction.

    A migration needs this after a change of columns, because a seal covers all columns.
    """
    connection.create_function("seal_of", -1, lambda *values: seal_of(values))
    for table in TABLES:
        listed = ", ".join(f'"{name}"' for name in table.names)
        connection.execute(f"UPDATE {table.name} SET {SEAL} = seal_of({listed})")


def encode_row(row: Row) -> tuple[str, tuple[Value, ...]]:
    """Return the SQL statement that writes or deletes a row, and its values.

    Raises:
        ValueError: If a number is not finite or does not fit 64 bits.
    """
    if isinstance(row, Deletion):
        gone: Row = row.row
        return table_of(gone).delete, table_of(gone).encode_key(gone)
    return table_of(row).upsert, table_of(row).encode(row)
