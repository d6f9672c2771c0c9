"""Backup of the journal: a copy that follows it row by row, in one transaction of the copy's own.

What a backup writes grows with what has changed since the last one, not with the journal: the
pages of changed rows, twice at most. The whole journal is copied only where there is no copy that
could follow it.

Tests: `tests/populations/storage/test_backup.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from pathlib import Path

from arena.failpoints import failpoint
from populations.errors import JournalCorrupt
from populations.storage.database import (
    connect,
    copy_durably,
    database_uri,
    require_sound,
    storage_errors,
)

logger = logging.getLogger(__name__)

PAGE_BYTES = 4096
"""Size of SQLite's pages."""

CACHE_KIB = 65_536
"""Most memory for pages of the backup while it is made."""


def back_up(journal: Path, backup: Path) -> int:
    """Bring the backup to the last committed state: completely or not at all.

    Returns:
        Bytes that were written.

    Raises:
        StorageError: If the disk refuses; the old backup stays.
        JournalCorrupt: If the journal is damaged; the old backup stays.
    """
    if backup.exists():
        try:
            written_bytes = _follow(journal, backup)
            if written_bytes is not None:
                return written_bytes
        except JournalCorrupt as error:
            # One of the two: a damaged journal is not copied below either, a damaged backup is
            # replaced.
            logger.warning("the backup cannot follow the journal: %s", error)
    copy_durably(journal, backup)
    return backup.stat().st_size


def roll_back(backup: Path) -> None:
    """Undo a transaction that a kill has cut off; then the backup is one file again.

    Raises:
        JournalCorrupt: If it is damaged.
        StorageError: If the disk refuses.
    """
    with storage_errors(backup), contextlib.closing(connect(backup, mode="rw")) as connection:
        # SQLite does it before it reads.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _follow(journal: Path, backup: Path) -> int | None:
    """Return the bytes written; None if the backup has other tables and cannot follow."""
    with storage_errors(backup), contextlib.closing(connect(backup, mode="rw")) as connection:
        # A single file at rest; FULL: a commit is on disk when it returns.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = FULL")
        # Changed pages wait there: what does not fit is written several times.
        connection.execute(f"PRAGMA main.cache_size = {-CACHE_KIB}")
        connection.execute("ATTACH ? AS journal", (database_uri(journal, mode="ro"),))
        # Closing without COMMIT undoes all of it.
        connection.execute("BEGIN IMMEDIATE")
        failpoint("backup.following")
        if _layout(connection, "main") != _layout(connection, "journal"):
            return None
        num_pages = _count(connection, "page_count")
        tables = connection.execute(
            "SELECT name FROM journal.sqlite_schema WHERE type = 'table'"
        ).fetchall()
        num_filled = sum(_copy_changes(connection, table) for (table,) in tables)
        # Of both: rows of a damaged journal must not replace good ones.
        require_sound(connection, journal, check="quick_check")
        # What a changed page was is written there first; a new or an empty page is written once.
        undo = backup.with_name(f"{backup.name}-journal")
        undo_bytes = undo.stat().st_size if undo.exists() else 0
        num_filled += max(_count(connection, "page_count") - num_pages, 0)
        written_bytes = 2 * undo_bytes + PAGE_BYTES * num_filled
        failpoint("backup.followed")
        connection.execute("COMMIT")
        failpoint("backup.committed")
    return written_bytes


def _count(connection: sqlite3.Connection, pages: str) -> int:
    return int(connection.execute(f"PRAGMA main.{pages}").fetchone()[0])


def _layout(connection: sqlite3.Connection, schema: str) -> tuple[object, ...]:
    """Return the definitions of tables and indexes, and the version."""
    statements = connection.execute(f"SELECT name, sql FROM {schema}.sqlite_schema ORDER BY name")
    versions = [
        connection.execute(f"PRAGMA {schema}.{name}").fetchone()[0]
        for name in ("application_id", "user_version")
    ]
    return (*statements.fetchall(), *versions)


def _copy_changes(connection: sqlite3.Connection, table: str) -> int:
    """Make one table equal, rowids included: they are the order in which rows are loaded.

    Returns:
        Number of empty pages that were filled.
    """
    described = connection.execute(f"PRAGMA journal.table_info({table})").fetchall()
    columns = [f'"{name}"' for _, name, *_ in described]
    keys = [kind for _, _, kind, _, _, place in described if place]
    # A primary key that is one whole number is the rowid itself.
    names = columns if keys == ["INTEGER"] else ["rowid", *columns]
    into, listed = ", ".join(names), ", ".join(f"j.{name}" for name in names)
    new, old = (", ".join(f"{one}.{name}" for name in columns) for one in ("j", "b"))
    connection.execute(
        f"DELETE FROM main.{table} WHERE rowid NOT IN (SELECT rowid FROM journal.{table})"
    )
    num_free = _count(connection, "freelist_count")
    (last,) = connection.execute(f"SELECT max(rowid) FROM main.{table}").fetchone()
    # OR REPLACE: a key may have moved to another rowid.
    connection.execute(
        f"INSERT OR REPLACE INTO main.{table} ({into}) SELECT {listed} FROM journal.{table} AS j "
        f"LEFT JOIN main.{table} AS b ON b.rowid = j.rowid "
        f"WHERE j.rowid <= ? AND (b.rowid IS NULL OR ({new}) IS NOT ({old}))",
        (last,),
    )
    # On their own, without a temporary table of all of them: nearly all changes are new rows.
    connection.execute(
        f"INSERT INTO main.{table} ({into}) SELECT {listed} FROM journal.{table} AS j "
        "WHERE j.rowid > ? ORDER BY j.rowid",
        (-1 if last is None else last,),
    )
    return max(num_free - _count(connection, "freelist_count"), 0)
