"""A journal's file: opening it, what is checked first, and how errors of SQLite come out."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from populations.errors import JournalCorrupt, StorageError

JOURNAL = "journal.db"
BACKUP = "journal.backup.db"
"""Where the copies of `Journal.backup` go."""

APPLICATION_ID = 0x4152454E
"""``AREN``: says in the file's header that it is a journal."""

SCHEMA_VERSION = 2

_MAGIC = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """Open a file in SQLite's ``mode`` (``ro``, ``rw``, ``rwc``); transactions are explicit."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open for reading, also where the directory may not be written to."""
    connection = connect(path, mode="ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # Without a WAL nobody writes, and SQLite need not make the files that it keeps for that.
        if path.with_name(path.name + "-wal").exists():
            raise
        return connect(path, mode="ro&immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def require_journal(path: Path) -> None:
    """Look at the file's header before SQLite touches anything beside it."""
    with storage_errors(path):
        if not path.exists():
            raise StorageError(f"{path}: there is no journal")
        with path.open("rb") as file:
            header = file.read(100)
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise JournalCorrupt(f"{path}: not a journal")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise JournalCorrupt(f"{path}: a database of another application")
    _require_version(int.from_bytes(header[60:64], "big"), path)


def require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse another schema version, also where only the WAL knows of it."""
    _require_version(connection.execute("PRAGMA user_version").fetchone()[0], path)


def _require_version(version: int, path: Path) -> None:
    if version != SCHEMA_VERSION:
        raise JournalCorrupt(
            f"{path}: schema version {version}; this release reads {SCHEMA_VERSION}"
            + (", upgrade arena-league" if version > SCHEMA_VERSION else "")
        )


def require_sound(connection: sqlite3.Connection, path: Path, *, check: str) -> None:
    """Run ``quick_check`` or ``integrity_check``."""
    findings = [row[0] for row in connection.execute(f"PRAGMA {check}(5)")]
    if findings != ["ok"]:
        raise JournalCorrupt(_damaged(path, "; ".join(map(str, findings))))


def _damaged(path: Path, what: str) -> str:
    copy = path.with_name(BACKUP)
    hint = f"; the last copy is {copy}" if copy.exists() else ""
    return f"{path}: damaged ({what}){hint}"


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of the block's statements, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into ours, with the path."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT:
            raise JournalCorrupt(_damaged(path, str(error))) from error
        raise StorageError(f"{path}: {error}") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def rename_durably(source: Path, target: Path) -> None:
    """Rename a finished file; its bytes and its name are on disk when this returns."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    os.rename(source, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
