"""Mapping of frozen rows to SQLite tables, one for all kinds of rows.

A field of a row is a column: numbers and text natively, a tuple of floats as packed float64 (a fit
has many), everything else as JSON text. Rows are returned in the order in which their keys were
first written, the order of the controller's dictionaries.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from arena.types import AssignmentId, Entrant, PlayerId, PolicyId
from populations.records.aggregates import PairKey, PairRow, RecordKey, RecordRow
from populations.records.plain import (
    Annotation,
    Plain,
    decoder,
    is_union,
    origin_of,
    require_finite,
    to_json,
)
from populations.records.rows import (
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RatingsRow,
    Row,
    RunRow,
    TallyRow,
)

KeyT = TypeVar("KeyT")
RowT = TypeVar("RowT", bound=Row)
Value = None | int | float | str | bytes

_NATIVE: Mapping[object, str] = {bool: "INTEGER", int: "INTEGER", float: "REAL", str: "TEXT"}
_MAX_INTEGER = 2**63 - 1


@dataclass(slots=True, kw_only=True)
class Tables:
    """Rows in memory, by key.

    Attributes:
        run: The run itself.
        policies: All policies.
        checkpoints: All checkpoints, deleted ones included.
        ghosts: All ghosts.
        generations: All generations, by entrant.
        assignments: Open (queued) assignments.
        records: Evaluation matches of each entrant, by population and entrant.
        pairs: Results of all pairs of entrants, by kind, entrants and seats.
        ratings: Last fit of each population.
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
    num_events: int
    num_tallies: int = 0
    last_evaluation_sequence: int = 0


def put_after(rows: dict[KeyT, RowT], count: int) -> list[RowT]:
    """Return the rows of a table after the first ``count``, in order, without iterating
    over those.
    """
    newest = list(islice(reversed(rows.values()), len(rows) - count))
    return newest[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Storage of one field.

    Attributes:
        name: Name of the field and of the column.
        declaration: SQL type and constraints.
        encode: Function to SQLite's value; ValueError for values that must not be stored.
        decode: Function back from the stored value; ValueError or TypeError for a damaged value.
            None: the stored value is the value.
        decode_tagged: Replaces ``decode`` where the row's ``kind`` determines the type of the
            value.
        default: SQL of the value in journals of releases before the column; None: all have it.
    """

    name: str
    declaration: str
    encode: Callable[[Plain], Value]
    decode: Callable[[Plain], Plain] | None = None
    decode_tagged: Callable[[Plain, Plain], Plain] | None = None
    default: str | None = None


class Table(typing.Generic[RowT]):
    """One kind of rows and its SQL. Immutable."""

    def __init__(
        self, name: str, row_type: type[RowT], *, key: str | tuple[str, ...] | None
    ) -> None:
        """Derive the SQL of a row type.

        Args:
            name: Name of the SQL table.
            row_type: Row type, whose fields are the columns.
            key: Columns of the primary key; None for a table of at most one row.
        """
        self.name = name
        self.row_type = row_type
        hints = typing.get_type_hints(row_type)
        self._columns = tuple(
            _with_default(_column(field.name, hints[field.name]), field.default)
            for field in dataclasses.fields(row_type)
        )
        self._names = tuple(column.name for column in self._columns)
        self._decoded = [
            (index, column.decode)
            for index, column in enumerate(self._columns)
            if column.decode is not None
        ]
        self._tagged = [
            (index, column.decode_tagged, self._names.index("kind"))
            for index, column in enumerate(self._columns)
            if column.decode_tagged is not None
        ]
        self._setters = [row_type.__dict__[name].__set__ for name in self._names]
        keys = (key,) if isinstance(key, str) else key or ()
        changes = ", ".join(
            f'"{name}" = excluded."{name}"' for name in self._names if name not in keys
        )
        listed = ", ".join(f'"{name}"' for name in self._names)
        places = ", ".join("?" * len(self._names))
        self.create = f"CREATE TABLE {name} ({self._declarations(keys)}) STRICT"
        if not keys:
            keys, listed, places = ("singleton",), f"{listed}, singleton", f"{places}, 1"
        self.upsert = (
            f"INSERT INTO {name} ({listed}) VALUES ({places}) ON CONFLICT ({_listed(keys)}) "
            f"DO UPDATE SET {changes}"
        )

    def select_from(self, connection: sqlite3.Connection) -> str:
        """Return the SELECT of all columns, without a condition.

        A column of a later release has its default in a journal that lacks it.
        """
        absent = {column.name: column.default for column in self._later_columns(connection)}
        listed = ", ".join(
            f'{absent[name]} AS "{name}"' if name in absent else f'"{name}"' for name in self._names
        )
        return f"SELECT {listed} FROM {self.name}"

    def added_columns(self, connection: sqlite3.Connection) -> list[str]:
        """Return the statements that add the columns which a journal lacks."""
        return [
            f'ALTER TABLE {self.name} ADD COLUMN "{column.name}" {column.declaration} '
            f"DEFAULT {column.default}"
            for column in self._later_columns(connection)
        ]

    def _later_columns(self, connection: sqlite3.Connection) -> list[Column]:
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({self.name})")}
        return [
            column
            for column in self._columns
            if column.default is not None and column.name not in present
        ]

    def _declarations(self, keys: tuple[str, ...]) -> str:
        only = keys[0] if len(keys) == 1 else None  # an integer one is SQLite's rowid
        declared = [
            f'"{column.name}" {column.declaration}'
            + (" PRIMARY KEY" if column.name == only else "")
            for column in self._columns
        ]
        if not keys:
            declared.append("singleton INTEGER PRIMARY KEY CHECK (singleton = 1)")
        elif only is None:
            declared.append(f"PRIMARY KEY ({_listed(keys)})")
        return ", ".join(declared)

    def encode(self, row: RowT) -> tuple[Value, ...]:
        """Return the row's values in the order of ``upsert``.

        Raises:
            ValueError: If a number is not finite or does not fit 64 bits.
        """
        return tuple(column.encode(getattr(row, column.name)) for column in self._columns)

    def decode(self, values: Sequence[Value]) -> RowT:
        """Return the row of values in the order of ``select_from``.

        Raises:
            ValueError: If a value is damaged.
            TypeError: If a value is damaged.
        """
        decoded = list(values)
        for index, decode in self._decoded:
            decoded[index] = decode(decoded[index])
        for index, decode_tagged, kind in self._tagged:
            decoded[index] = decode_tagged(decoded[index], decoded[kind])
        # Slots are set directly: half the time of calling the row's type, and there are many rows.
        row = object.__new__(self.row_type)
        for set_slot, value in zip(self._setters, decoded, strict=True):
            set_slot(row, value)
        return row


def _with_default(column: Column, value: object) -> Column:
    """Return a column that may be missing: one that may be NULL, or whose field has a default."""
    if value is dataclasses.MISSING:
        return (
            column if column.declaration.endswith("NOT NULL") else replace(column, default="NULL")
        )
    return replace(column, default=_literal(column.encode(value)))


def _literal(value: Value) -> str:
    """Return the SQL of a value."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return repr(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _column(name: str, annotation: Annotation) -> Column:
    kind, is_optional = _without_none(annotation)
    if kind is Entrant and not is_optional:
        return Column(name=name, declaration="TEXT NOT NULL", encode=str, decode=_shared)
    while isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    if origin_of(kind) is Literal:
        check = decoder(kind)
        return Column(
            name=name,
            declaration="TEXT NOT NULL",
            encode=check,
            decode=check,
        )
    if kind in _NATIVE:
        return _native_column(name, kind, is_optional=is_optional)
    if origin_of(kind) is tuple and get_args(kind)[0] is float:
        return Column(
            name=name,
            declaration="BLOB NOT NULL",
            encode=lambda value: _pack_floats(value, name=name),
            decode=_unpack_floats,
        )
    return Column(
        name=name,
        declaration="TEXT NOT NULL",
        encode=to_json,
        decode=None if is_union(kind) else _json_decode(kind),
        decode_tagged=_tagged_json_decode(kind) if is_union(kind) else None,
    )


def _without_none(annotation: Annotation) -> tuple[Annotation, bool]:
    """Split ``X | None`` into X and whether None was there."""
    if is_union(annotation):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        if len(kinds) == 1:
            return kinds[0], True
    return annotation, False


def _native_column(name: str, kind: type, *, is_optional: bool) -> Column:
    def encode(value: Plain) -> Value:
        if value is None:
            if is_optional:
                return None
            raise ValueError(f"{name} must not be None")
        if kind is str:
            return str(value)
        if kind is float:
            return require_finite(float(value), name=name)
        if abs(int(value)) > _MAX_INTEGER:
            raise ValueError(f"{name} must fit 64 bits, got {value!r}")
        return int(value)

    return Column(
        name=name,
        declaration=_NATIVE[kind] + ("" if is_optional else " NOT NULL"),
        encode=encode,
        decode=_native_decode(kind, is_optional=is_optional),
    )


def _native_decode(kind: type, *, is_optional: bool) -> Callable[[Plain], Plain] | None:
    """Return a check of a stored value; STRICT tables enforce all types but bool."""
    if kind is bool:
        return lambda value: None if value is None else bool(value)
    return None


def _shared(entrant: str) -> str:
    """Return one shared copy of each name: the rows of pairs repeat the same entrants."""
    return sys.intern(entrant)


def _pack_floats(values: Sequence[float], *, name: str) -> bytes:
    array = np.asarray(values, dtype="<f8")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array.tobytes()


def _unpack_floats(data: bytes) -> tuple[float, ...]:
    values: list[float] = np.frombuffer(data, dtype="<f8").tolist()
    return tuple(values)


def _json_decode(kind: Annotation) -> Callable[[Plain], Plain]:
    item = decoder(kind)
    return lambda text: item(json.loads(text))


def _tagged_json_decode(kind: Annotation) -> Callable[[Plain, Plain], Plain]:
    """Decode JSON text of a union of dataclasses, distinguished by the row's ``kind``."""
    by_kind = {member.__name__.lower(): decoder(member) for member in get_args(kind)}

    def decode(text: str, tag: Plain) -> Plain:
        if tag not in by_kind:
            raise ValueError(f"kind must be one of {sorted(by_kind)}, got {tag!r}")
        return by_kind[tag](json.loads(text))

    return decode


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
    )
}

TABLES: tuple[Table[Any], ...] = tuple(_BY_TYPE.values())

SCHEMA = (
    *(table.create for table in TABLES),
    "CREATE INDEX assignments_status ON assignments (status)",
)


def added_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that add the columns which a journal of an older release lacks."""
    return [sql for table in _BY_TYPE.values() for sql in table.added_columns(connection)]


def encode_row(row: Row) -> tuple[str, tuple[Value, ...]]:
    """Return the SQL statement that writes a row, and its values.

    Raises:
        ValueError: If a number is not finite or does not fit 64 bits.
    """
    table = _BY_TYPE[type(row)]
    return table.upsert, table.encode(row)
