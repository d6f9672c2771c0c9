"""The journal's file: opening, checks before that, and translation of SQLite's errors.

Tests: `tests/populations/storage/test_journal.py` and `tests/faults/test_full_disk.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from arena.failpoints import failpoint
from arena.files import NO_DESCRIPTORS, open_regular, require_regular, sync_directory, words_of
from populations.errors import (
    JournalCorrupt,
    JournalForeign,
    JournalOlder,
    StorageError,
    StorageUnavailable,
)

JOURNAL = "journal.db"
BACKUP = "journal.backup.db"
"""File that `Journal.backup` keeps up to date."""

APPLICATION_ID = 0x4152454E
"""``AREN``: marks the file as a journal in its header."""

SCHEMA_VERSION = 1

TEMPORARY_FILE = re.compile(r"\.tmp-[0-9a-f]{32}.*")
"""Copy that is being made, and SQLite's side files."""

_MAGIC = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
# SQLITE_ERROR: the statements are ours, so what SQLite does not understand is the damaged schema.
# SQLITE_TOOBIG: a damaged length.
_CORRUPT = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_TOOBIG,
    }
)
_NO_UTF8 = "Could not decode to UTF-8"

# Errors that may pass and leave nothing behind: also that all descriptors are in use. A failed
# fsync is not among them: the kernel may have dropped the pages that it could not write, and a
# second fsync would not report that.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS}) | NO_DESCRIPTORS
# Codes are compared whole: the primary code of a failed fsync is SQLITE_IOERR, like that of a
# failed write.
_PASSING_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})


def database_uri(path: Path, *, mode: str) -> str:
    """Return a file's name as SQLite takes it, with its ``mode`` (``ro``, ``rw``, ``rwc``)."""
    return f"{path.absolute().as_uri()}?mode={mode}"


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """Open a file in SQLite's ``mode``; transactions are explicit."""
    # SQLite would wait for the writer of a pipe in the place of one of them.
    require_regular(path, follows_links=mode.startswith("ro"))
    for suffix in SIDE_FILES:
        # SQLite writes to them for a reader, too: what a link leads to would be lost.
        require_regular(path.with_name(path.name + suffix), follows_links=False)
    # isolation_level=None: Python opens no transaction of its own (see `transaction`).
    connection = sqlite3.connect(
        database_uri(path, mode=mode), uri=True, isolation_level=None, timeout=5.0
    )
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_reader(path: Path, *, is_alone: bool = False) -> sqlite3.Connection:
    """Open for reading, even in a read-only directory.

    Args:
        path: Path of the file.
        is_alone: Whether nobody can write to it meanwhile: then no file is left beside it.
    """
    if is_alone and not any(path.with_name(f"{path.name}{end}").exists() for end in SIDE_FILES):
        return connect(path, mode="ro&immutable=1")
    connection = connect(path, mode="ro")
    try:
        # SQLite opens files at the first read: only now does a read-only directory refuse the -shm.
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # There is no writer without a WAL, so SQLite need not create the files that coordinate with
        # one. Files beside the journal have to be read, too.
        beside = [s for s in ("-wal", "-journal") if path.with_name(path.name + s).exists()]
        if beside and not os.access(path.parent, os.W_OK):
            raise StorageError(
                f"{path}: SQLite reads {path.name}{beside[0]} beside it only in a directory that "
                "can be written: copy both into one"
            ) from None
        if beside:
            raise
        return connect(path, mode="ro&immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def require_journal(path: Path) -> int:
    """Check the file's header before SQLite touches any side file.

    Returns:
        Schema version in the header, not above this release's.
    """
    with storage_errors(path):
        if not path.exists():
            raise StorageError(f"{path}: there is no journal{repair_hint(path)}")
        with open_regular(path) as file:
            # SQLite's header has 100 bytes, big-endian: user_version at 60, application_id at 68.
            header = file.read(100)
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise JournalCorrupt(f"{path}: not a journal{repair_hint(path)}")
    application_id = int.from_bytes(header[68:72], "big")
    if application_id != APPLICATION_ID:
        raise JournalForeign(
            f"{path}: a database of another application (id {application_id:#x}, a journal has "
            f"{APPLICATION_ID:#x})"
        )
    version = int.from_bytes(header[60:64], "big")
    # An older version decides nothing yet: a migration's commit may still be in the WAL.
    if version > SCHEMA_VERSION:
        require_version(version, path)
    return version


def require_readable(path: Path) -> None:
    """Refuse a journal that a reader cannot read, by the header where that is conclusive."""
    version = require_journal(path)
    # A committed migration may be in the WAL alone.
    if not path.with_name(path.name + "-wal").exists():
        require_version(version, path)


def require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse another schema version, even if only the WAL has it."""
    require_version(schema_version(connection), path)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the committed schema version, whether or not it has reached the header."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def require_version(version: int, path: Path) -> None:
    """Refuse any schema version but this release's."""
    told = f"{path}: schema version {version}; this release reads {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise JournalForeign(f"{told}: upgrade arena-league")
    if version < SCHEMA_VERSION:
        raise JournalOlder(
            f"{told}; going on with the run (arena launch --resume) brings it up to date"
        )


def require_sound(connection: sqlite3.Connection, path: Path, *, check: str) -> None:
    """Run ``quick_check`` or ``integrity_check``."""
    findings = [row[0] for row in connection.execute(f"PRAGMA {check}(5)")]
    if findings != ["ok"]:
        raise JournalCorrupt(_damaged(path, "; ".join(map(str, findings))))


def _damaged(path: Path, what: str) -> str:
    return f"{path}: damaged ({what}){repair_hint(path)}"


def repair_hint(path: Path) -> str:
    """Return advice about a damaged or missing journal, for the end of a message."""
    if not path.with_name(BACKUP).exists():
        return "; there is no backup"
    return f"; `arena verify {path.parent} --repair` restores the last backup"


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run all of the block's statements, or none."""
    # IMMEDIATE locks now: a transaction that becomes a writer later may fail halfway (SQLITE_BUSY).
    connection.execute("BEGIN IMMEDIATE")
    try:
        failpoint("journal.begun")
        yield
        failpoint("journal.written")
        connection.execute("COMMIT")
        failpoint("journal.committed")
    except BaseException:
        # SQLite may have rolled back by itself after a full disk or an I/O error.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of the disk into Arena's, with the path."""
    try:
        yield
    except sqlite3.Error as error:
        # Errors that Python's module raises itself have no code.
        code = getattr(error, "sqlite_errorcode", 0)
        # The low byte is SQLite's primary code, the rest refines it.
        if code & 0xFF in _CORRUPT or _NO_UTF8 in str(error):
            raise JournalCorrupt(_damaged(path, str(error))) from error
        kind = StorageUnavailable if code in _PASSING_CODES else StorageError
        raise kind(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        # SQLite's own message has quoted the damaged bytes.
        raise JournalCorrupt(_damaged(path, "a name or text that is no UTF-8")) from error
    except OSError as error:
        kind = StorageUnavailable if error.errno in _PASSING else StorageError
        raise kind(f"{error.filename or path}: {words_of(error)}") from error


def rename_durably(source: Path, target: Path) -> None:
    """Rename a finished file; its bytes and its name are on disk on return."""
    # The bytes first: a crash must not leave the name of an incomplete file.
    with source.open("rb") as file:
        os.fsync(file.fileno())
    failpoint("rename.synced")
    os.rename(source, target)
    failpoint("rename.renamed")
    # The new name is an entry of the directory, which has an fsync of its own.
    sync_directory(target.parent)
    failpoint("rename.directory")
