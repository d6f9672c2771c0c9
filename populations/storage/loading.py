"""Reading of rows from an open journal.

Tests: `tests/populations/records/test_tables.py` and `tests/populations/storage/test_journal.py`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from populations.errors import JournalCorrupt
from populations.gc_pause import collector_paused
from populations.records.columns import Value
from populations.records.rows import BEGINNING, ArchiveRow
from populations.records.tables import (
    ARCHIVES,
    ASSIGNMENTS,
    KEPT,
    PAIRS,
    RUN,
    TABLES,
    RowT,
    SqlTable,
    Table,
    Tables,
)
from populations.storage.database import repair_hint


@collector_paused()
def load_tables(
    connection: sqlite3.Connection, path: Path, *, pairs: Sequence[str] | None = None
) -> Tables:
    """Return all rows of the controller's state, in one transaction of the caller.

    Args:
        connection: Connection to the journal.
        path: Path of the journal, for messages.
        pairs: Kinds of the results of pairs that are read. None: all.

    Raises:
        JournalCorrupt: If a row is damaged.
    """

    def rows(table: SqlTable[RowT], where: str = "", given: Sequence[Value] = ()) -> list[RowT]:
        # rowid is the order of first writing, as in the controller's tables (`SqlTable.upsert`).
        return read_rows(connection, path, table, f"{where} ORDER BY rowid", given)

    def last(table: str, where: str = "") -> int:
        # Sequences are read from the end: an aggregate with a filter would scan the whole table.
        query = f"SELECT sequence FROM {table} {where} ORDER BY sequence DESC LIMIT 1"
        found = connection.execute(query).fetchone()
        return 0 if found is None else int(found[0])

    runs = rows(RUN)
    if len(runs) != 1:
        raise JournalCorrupt(
            f"{path}: {len(runs)} rows for the run instead of 1{repair_hint(path)}"
        )
    archive = last_archive(connection, path)
    # Plus: sorting what an index finds takes longer than one pass.
    chosen = "" if pairs is None else f"WHERE +kind IN ({', '.join('?' * len(pairs))})"
    conditions: dict[str, tuple[str, Sequence[Value]]] = {
        # Closed ones are most of the table; the controller needs none of them.
        ASSIGNMENTS.name: ("WHERE status = 'queued'", ()),
        PAIRS.name: (chosen, pairs or ()),
    }
    kept: dict[str, Any] = {
        table.name: Table(table, rows(table, *conditions.get(table.name, ()))) for table in KEPT
    }
    return Tables(
        run=runs[0],
        **kept,
        # All details may have left the journal.
        num_events=max(last("events"), archive.events),
        num_tallies=max(last("tallies"), archive.tallies),
        last_evaluation_sequence=max(last("tallies", "WHERE kind = 'evaluate'"), archive.evaluated),
    )


def read_rows(
    connection: sqlite3.Connection,
    path: Path,
    table: SqlTable[RowT],
    suffix: str,
    parameters: Sequence[Value] = (),
) -> list[RowT]:
    """Return rows of one table; ``suffix`` follows ``SELECT ... FROM table``.

    Raises:
        JournalCorrupt: If a row is damaged.
    """
    selected = connection.execute(f"{table.select} {suffix}", parameters)
    # The cursor is closed at a damaged row, too: a writer with an open one could not be closed.
    with row_errors(path, table), contextlib.closing(selected) as cursor:
        return [table.decode(table.unsealed(stored)) for stored in cursor]


@contextlib.contextmanager
def row_errors(path: Path, table: SqlTable[Any]) -> Iterator[None]:
    """Translate errors of a row's content."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        # RecursionError: damaged JSON may be nested without end.
        raise JournalCorrupt(
            f"{path}: a row of {table.name} is damaged: {error}{repair_hint(path)}"
        ) from error


def split_rows(
    connection: sqlite3.Connection, table: SqlTable[RowT]
) -> tuple[dict[int, RowT], list[int]]:
    """Return a table's rows by rowid, and the rowids of those that cannot be read, in order."""
    sound: dict[int, RowT] = {}
    damaged: list[int] = []
    # Their rowids first: each row is asked for on its own, so that one that SQLite cannot
    # decode does not hide the others.
    for (rowid,) in connection.execute(f"SELECT rowid FROM {table.name} ORDER BY rowid").fetchall():
        try:
            stored = connection.execute(f"{table.select} WHERE rowid = ?", [rowid]).fetchone()
            sound[rowid] = table.decode(table.unsealed(stored))
        except (ValueError, TypeError, RecursionError, sqlite3.OperationalError):
            damaged.append(rowid)
    return sound, damaged


def require_sealed(connection: sqlite3.Connection, path: Path) -> None:
    """Read every row of a journal.

    Raises:
        JournalCorrupt: If one is damaged.
    """
    for table in TABLES:
        selected = connection.execute(table.select)
        with row_errors(path, table), contextlib.closing(selected) as cursor:
            for stored in cursor:
                table.unsealed(stored)


def last_archive(connection: sqlite3.Connection, path: Path) -> ArchiveRow:
    """Return the last range of details that has left the journal; `BEGINNING` if none has."""
    suffix = "WHERE file != '' ORDER BY number DESC LIMIT 1"
    return next(iter(read_rows(connection, path, ARCHIVES, suffix)), BEGINNING)


def load_archives(connection: sqlite3.Connection, path: Path) -> list[ArchiveRow]:
    """Return the ranges of details, in order; those with a file have left the journal."""
    return read_rows(connection, path, ARCHIVES, "ORDER BY number")
