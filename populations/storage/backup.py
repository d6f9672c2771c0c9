"""Backup of the journal: a copy that is updated row by row, in one transaction of its own.

An update writes only the pages of rows that changed since the last one, at most twice, so its cost
does not grow with the journal. The whole journal is copied only if there is no copy that can be
updated.

Tests: `tests/populations/storage/test_archive.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import uuid
from pathlib import Path

from arena.failpoints import failpoint
from populations.errors import JournalCorrupt, JournalForeign, StorageError
from populations.records.columns import Value
from populations.records.tables import SEAL, TABLES
from populations.storage.database import (
    SCHEMA_VERSION,
    SIDE_FILES,
    connect,
    connect_reader,
    database_uri,
    rename_durably,
    repair_hint,
    require_readable,
    require_schema,
    require_sealed,
    require_sound,
    schema_version,
    storage_errors,
)

logger = logging.getLogger(__name__)

PAGE_BYTES = 4096
"""Size of SQLite's pages."""

CACHE_KIB = 65_536
"""Maximum memory for pages of the backup during an update."""


def back_up(journal: Path, backup: Path) -> int:
    """Update the backup to the last committed state, atomically.

    Returns:
        Number of bytes written.

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
            # Either file may be damaged. A damaged backup is replaced below; a damaged journal is
            # not copied, as the copy is checked.
            logger.warning("the backup cannot follow the journal: %s", error)
    copy_durably(journal, backup)
    return backup.stat().st_size


def copy_durably(source: Path, target: Path) -> None:
    """Copy the committed state of a journal, atomically, unless it is damaged.

    Raises:
        StorageError: If the disk refuses.
        JournalCorrupt: If the journal is damaged; ``target`` stays unchanged.
    """
    # `TEMPORARY_FILE` matches this name, so after a kill the next start removes the file.
    temporary = target.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        with (
            storage_errors(target),
            contextlib.closing(connect(source, mode="ro")) as original,
            contextlib.closing(connect(temporary, mode="rwc")) as copy,
        ):
            failpoint("backup.begin")
            original.backup(copy)
            failpoint("backup.copied")
            # A damaged copy must not replace the last good one.
            require_sound(copy, source, check="quick_check")
            # This release can decode rows of an older schema only after a migration.
            if schema_version(copy) == SCHEMA_VERSION:
                require_sealed(copy, source)
            # The copied header requires a WAL, but a copy should be a single file.
            copy.execute("PRAGMA journal_mode = DELETE")
        # Both connections are closed by now, so the copy is one file without a WAL.
        with storage_errors(target):
            # SQLite would apply side files of the old target to the new copy.
            for suffix in SIDE_FILES:
                target.with_name(target.name + suffix).unlink(missing_ok=True)
            rename_durably(temporary, target)
    finally:
        for suffix in ("", *SIDE_FILES):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def backup_problem(backup: Path) -> str | None:
    """Return why a backup cannot be restored; None if it can, or if it cannot be checked now."""
    # A backup with a rollback journal is being updated, or a kill interrupted the update. A
    # rollback restores its last state.
    if not backup.exists() or backup.with_name(f"{backup.name}-journal").exists():
        return None
    try:
        require_readable(backup)
        with storage_errors(backup), contextlib.closing(connect_reader(backup)) as connection:
            require_schema(connection, backup)
            require_sound(connection, backup, check="integrity_check")
            require_sealed(connection, backup)
    except JournalForeign:
        # A backup of another release is not damaged; a repair migrates an older one.
        return None
    except StorageError as error:
        return str(error).removesuffix(repair_hint(backup))
    return None


def roll_back(backup: Path) -> None:
    """Undo an update that a kill interrupted, so that the backup is a single file again.

    Raises:
        JournalCorrupt: If the backup is damaged.
        StorageError: If the disk refuses.
    """
    with storage_errors(backup), contextlib.closing(connect(backup, mode="rw")) as connection:
        # SQLite rolls an interrupted transaction back before its first read.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _follow(journal: Path, backup: Path) -> int | None:
    """Update the backup and return the bytes written; None if it has other tables or versions."""
    with storage_errors(backup), contextlib.closing(connect(backup, mode="rw")) as connection:
        # DELETE keeps the backup a single file; with FULL a commit is on disk when it returns.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = FULL")
        # Changed pages stay in this cache until the commit; without room they are rewritten.
        connection.execute(f"PRAGMA main.cache_size = {-CACHE_KIB}")
        connection.execute("ATTACH ? AS journal", (database_uri(journal, mode="ro"),))
        # Closing the connection without COMMIT undoes all changes.
        connection.execute("BEGIN IMMEDIATE")
        failpoint("backup.following")
        if _layout(connection, "main") != _layout(connection, "journal"):
            return None
        num_pages = _count(connection, "page_count")
        tables = connection.execute(
            "SELECT name FROM journal.sqlite_schema WHERE type = 'table'"
        ).fetchall()
        damaged: set[str] = set()
        num_filled = sum(_copy_changes(connection, table, damaged) for (table,) in tables)
        if damaged:
            raise JournalCorrupt(f"{journal}: rows of {', '.join(sorted(damaged))} are damaged")
        # Without a schema name this checks both files, as rows of a damaged journal must not
        # replace good ones.
        require_sound(connection, journal, check="quick_check")
        # SQLite saves the old content of a changed page in the rollback journal first, so such a
        # page counts twice; a new or an empty page is written once.
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
    """Return the definitions of tables and indexes, and the versions, to compare two files."""
    statements = connection.execute(f"SELECT name, sql FROM {schema}.sqlite_schema ORDER BY name")
    versions = [
        connection.execute(f"PRAGMA {schema}.{name}").fetchone()[0]
        for name in ("application_id", "user_version")
    ]
    return (*statements.fetchall(), *versions)


def _copy_changes(connection: sqlite3.Connection, table: str, damaged: set[str]) -> int:
    """Make one table equal to the journal's, including rowids, which give the order of loading.

    Args:
        connection: Connection to the backup, with the journal attached.
        table: Name of the table.
        damaged: Set to which the name is added if a changed row does not match its seal.

    Returns:
        Number of empty pages that were filled.
    """
    described = connection.execute(f"PRAGMA journal.table_info({table})").fetchall()
    columns = [f'"{name}"' for _, name, *_ in described]
    keys = [kind for _, _, kind, _, _, place in described if place]
    # In SQLite a primary key of one INTEGER is the rowid itself.
    names = columns if keys == ["INTEGER"] else ["rowid", *columns]
    # The seal is selected through a function that compares it with its row.
    sealed = {f'"{SEAL}"': f"{_checked(connection, table, damaged)} AS {SEAL}"}
    into = ", ".join(names)
    listed = ", ".join(sealed.get(name, f"j.{name}") for name in names)
    new, old = (", ".join(f"{one}.{name}" for name in columns) for one in ("j", "b"))
    connection.execute(
        f"DELETE FROM main.{table} WHERE rowid NOT IN (SELECT rowid FROM journal.{table})"
    )
    num_free = _count(connection, "freelist_count")
    (last,) = connection.execute(f"SELECT max(rowid) FROM main.{table}").fetchone()
    # OR REPLACE is needed because a key may have moved to another rowid.
    connection.execute(
        f"INSERT OR REPLACE INTO main.{table} ({into}) SELECT {listed} FROM journal.{table} AS j "
        f"LEFT JOIN main.{table} AS b ON b.rowid = j.rowid "
        f"WHERE j.rowid <= ? AND (b.rowid IS NULL OR ({new}) IS NOT ({old}))",
        (last,),
    )
    # Nearly all changes are new rows. A statement of their own needs no temporary table.
    connection.execute(
        f"INSERT INTO main.{table} ({into}) SELECT {listed} FROM journal.{table} AS j "
        "WHERE j.rowid > ? ORDER BY j.rowid",
        (-1 if last is None else last,),
    )
    return max(num_free - _count(connection, "freelist_count"), 0)


def _checked(connection: sqlite3.Connection, table: str, damaged: set[str]) -> str:
    """Create an SQL function that checks rows, and return the SQL of a seal that calls it."""
    kind = next((one for one in TABLES if one.name == table), None)
    if kind is None:
        return f"j.{SEAL}"

    def check(*stored: Value) -> Value:
        try:
            kind.unsealed(stored)
        except ValueError:
            damaged.add(table)
        return stored[-1]

    connection.create_function(f"checked_{table}", -1, check)
    columns = ", ".join(f'j."{name}"' for name in (*kind.names, SEAL))
    return f"checked_{table}({columns})"
