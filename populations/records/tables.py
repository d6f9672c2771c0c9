"""Mapping of frozen rows to SQLite tables, one for all kinds of rows.

A field of a row is a column: numbers and text natively, a tuple of floats as packed float64 (a fit
has many), everything else as JSON text. Rows are returned in the order in which their keys were
first written, the order of the controller's dictionaries.

Each stored row has a seal, a checksum of its values: a flipped bit in a number or a name would be
as believable as the true one. A row is read only if its seal fits.
"""

from __future__ import annotations

import sqlite3
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import msgpack
import msgspec

from arena.types import AssignmentId, Entrant, PlayerId, PolicyId
from populations.records.aggregates import PairKey, PairRow, RecordKey, RecordRow, Row
from populations.records.columns import Column, Value, column_of
from populations.records.rows import (
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RatingsRow,
    RunRow,
    TallyRow,
)

KeyT = TypeVar("KeyT")
RowT = TypeVar("RowT", bound=Row)


@dataclass(slots=True, kw_only=True)
class Tables:
    """Rows in memory, by key.

    Attributes:
        run: The run itself.
        policies: All policies.
        checkpoints: All recorded checkpoints; deleted ones while something refers to them.
        ghosts: All ghosts.
        generations: All generations, by entrant.
        assignments: Open (queued) assignments.
        records: Evaluation matches of each entrant, by population and entrant.
        pairs: Results of all pairs of entrants, by kind, entrants and seats.
        ratings: Last fit of each population.
        games: Games that are kept, by id.
        num_events: Number of events; the last one's sequence.
        num_tallies: Number of tallies; the last one's sequence.
        last_evaluation_sequence: Sequence of the last evaluation tally; 0 without one.
    """

    run: RunRow
    policies: dict[PolicyId, PolicyRow]
    checkpoints: dict[str, CheckpointRow]
    ghosts: dict[PlayerId, GhostRow]
    generations: dict[Entrant, GenerationRow]
    assignments: dict[AssignmentId, AssignmentRow]
    records: dict[RecordKey, RecordRow] = field(default_factory=dict)
    pairs: dict[PairKey, PairRow] = field(default_factory=dict)
    ratings: dict[str, RatingsRow]
    games: dict[str, GameRow] = field(default_factory=dict)
    num_events: int
    num_tallies: int = 0
    last_evaluation_sequence: int = 0


def put_after(rows: dict[KeyT, RowT], count: int) -> list[RowT]:
    """Return the rows of a table after the first ``count``, in order, without iterating
    over those.
    """
    # A dictionary keeps the place of a key whose row is replaced, so new keys are at the end.
    newest = list(islice(reversed(rows.values()), len(rows) - count))
    return newest[::-1]


SEAL = "seal"
"""Column of a row's seal, the last one of every table."""


def seal_of(values: Sequence[Value]) -> int:
    """Return the checksum of a row's values, in 32 bits with the sign: SQLite's shortest."""
    # msgpack: 1, 1.0, "1" and NULL have different bytes, as in SQLite.
    return zlib.crc32(msgpack.packb(values)) - 2**31


def _listed(names: Sequence[str]) -> str:
    """Return column names as SQL lists them."""
    # Quoted: ``index`` and ``key`` are words of SQL.
    return ", ".join(f'"{name}"' for name in names)


_SEAL_COLUMN = Column(name=SEAL, declaration="INTEGER NOT NULL", encode=int)


class Table(typing.Generic[RowT]):
    """One kind of rows and its SQL. Immutable."""

    def __init__(
        self,
        name: str,
        row_type: type[RowT],
        *,
        key: str | tuple[str, ...] | None,
    ) -> None:
        """Derive the SQL of a row type.

        Args:
            name: Name of the SQL table.
            row_type: Row type, whose fields are the columns.
            key: Columns of the primary key; None for a table of at most one row.
        """
        self.name = name
        self.row_type = row_type
        self.key = key if isinstance(key, str) else ""
        """Column of the primary key, if it is one."""
        self._columns = tuple(
            column_of(own.name, own.type) for own in msgspec.structs.fields(row_type)
        )
        self.names = tuple(column.name for column in self._columns)
        # Most columns need no decoding, and there are many rows.
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
        # STRICT: SQLite refuses values of other types, so native columns are not checked again.
        self.create = f"CREATE TABLE {name} ({self._declarations(keys)}) STRICT"
        if not keys:
            # A constant key, so that the second row of a table without one replaces the first.
            keys, listed, places = ("singleton",), f"{listed}, singleton", f"{places}, 1"
        self._key_columns = [column for column in self._columns if column.name in keys]
        conditions = " AND ".join(f'"{column.name}" = ?' for column in self._key_columns)
        self.delete = f"DELETE FROM {name} WHERE {conditions}"
        # An upsert keeps the rowid, and so the order of first writing; REPLACE would not.
        self.upsert = (
            f"INSERT INTO {name} ({listed}) VALUES ({places}) ON CONFLICT ({_listed(keys)}) "
            f"DO UPDATE SET {changes}"
        )

    def _declarations(self, keys: tuple[str, ...]) -> str:
        only = keys[0] if len(keys) == 1 else None  # an integer one is SQLite's rowid
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
        """Return a row's values without its seal, which must fit them.

        Args:
            stored: Values in the order of ``select``.

        Raises:
            ValueError: If the seal is that of other values.
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
        """Return the row of values in the order of ``select``, without the seal.

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


RUN = Table("run", RunRow, key=None)
POLICIES = Table("policies", PolicyRow, key="policy")
CHECKPOINTS = Table("checkpoints", CheckpointRow, key="key")
GHOSTS = Table("ghosts", GhostRow, key="player")
GENERATIONS = Table("generations", GenerationRow, key="entrant")
ASSIGNMENTS = Table("assignments", AssignmentRow, key="assignment_id")
TALLIES = Table("tallies", TallyRow, key="sequence")
RECORDS = Table("records", RecordRow, key=("population", "entrant"))
PAIRS = Table("pairs", PairRow, key=("kind", "first", "second", "first_seat", "second_seat"))
RATINGS = Table("ratings", RatingsRow, key="population")
EVENTS = Table("events", EventRow, key="sequence")
ARCHIVES = Table("archives", ArchiveRow, key="number")
GAMES = Table("games", GameRow, key="game")

_BY_TYPE: dict[type, Table[Any]] = {
    table.row_type: table
    for table in (
        RUN,
        POLICIES,
        CHECKPOINTS,
        GHOSTS,
        GENERATIONS,
        ASSIGNMENTS,
        TALLIES,
        RECORDS,
        PAIRS,
        RATINGS,
        EVENTS,
        ARCHIVES,
        GAMES,
    )
}

TABLES: tuple[Table[Any], ...] = tuple(_BY_TYPE.values())

ARCHIVED: tuple[Table[EventRow] | Table[AssignmentRow] | Table[TallyRow], ...] = (
    EVENTS,
    ASSIGNMENTS,
    TALLIES,
)
"""Details, which leave the journal when they are old; `ArchiveRow` has fields of these names."""

SCHEMA = (
    *(table.create for table in TABLES),
    # A resume looks for the few open ones among all assignments of the run.
    "CREATE INDEX assignments_status ON assignments (status)",
)


def table_of(row: RowT) -> Table[RowT]:
    """Return the table of a row."""
    return _BY_TYPE[type(row)]


def seal_rows(connection: sqlite3.Connection) -> None:
    """Give all rows the seals of their values, in the caller's transaction.

    After a change of columns: seals are of the columns that a row was written with.
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
