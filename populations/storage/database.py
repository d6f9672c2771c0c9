"""The journal's file: checks, connections, SQLite's errors, and reading of rows.

SQLite reads a WAL up to the first frame with a wrong checksum and silently ignores the rest, so one
flipped bit loses all later commits. `unreadable_commits` counts these commits, because each frame
names the WAL that it belongs to (its two salts) and says whether it ends a commit. The format is
that of https://sqlite.org/walformat.html.

Tests: `tests/populations/storage/test_journal.py`, `tests/faults/test_full_disk.py`,
`tests/populations/records/test_tables.py`, `tests/faults/test_damaged_checkpoints.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arena.failpoints import failpoint
from arena.files import NO_DESCRIPTORS, open_regular, require_regular, sync_directory, words_of
from populations.errors import (
    JournalCorrupt,
    JournalForeign,
    JournalOlder,
    StorageError,
    StorageUnavailable,
)
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

JOURNAL = "journal.db"
BACKUP = "journal.backup.db"
"""Copy of the journal that `Journal.backup` updates."""

APPLICATION_ID = 0x4152454E
"""Number in the header of the file (``AREN``) that marks it as a journal."""

SCHEMA_VERSION = 1

TEMPORARY_FILE = re.compile(r"\.tmp-[0-9a-f]{32}.*")
"""Name of an unfinished copy of a journal, or of a side file that SQLite makes for it."""

_MAGIC = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
# Arena's statements are valid, so SQLITE_ERROR means that the schema is damaged. SQLITE_TOOBIG
# means that the length of a value is damaged.
_CORRUPT = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_TOOBIG,
    }
)
_NO_UTF8 = "Could not decode to UTF-8"

# These errors may pass, and a retry is safe; a lack of file descriptors is one of them. A failed
# fsync is not, because the kernel may have dropped the pages that it could not write, and a second
# fsync would not report that.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS}) | NO_DESCRIPTORS
# Compare extended codes: a failed fsync has the same primary code as a failed write, SQLITE_IOERR.
_PASSING_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})


def database_uri(path: Path, *, mode: str) -> str:
    """Return the URI by which SQLite opens a file in a ``mode`` (``ro``, ``rw``, ``rwc``)."""
    return f"{path.absolute().as_uri()}?mode={mode}"


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """Open a file in SQLite's ``mode``; transactions are explicit."""
    # If a named pipe has the file's name, SQLite would wait for its writer for ever.
    require_regular(path, follows_links=mode.startswith("ro"))
    for suffix in SIDE_FILES:
        # SQLite writes to side files even for a reader, so it would overwrite the target of a link.
        require_regular(path.with_name(path.name + suffix), follows_links=False)
    # With isolation_level=None, Python opens no transactions of its own (see `transaction`).
    connection = sqlite3.connect(
        database_uri(path, mode=mode), uri=True, isolation_level=None, timeout=5.0
    )
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_reader(path: Path, *, is_alone: bool = False) -> sqlite3.Connection:
    """Open a journal for reading, even in a read-only directory.

    Args:
        path: Path of the file.
        is_alone: Whether no other process can write to it meanwhile. If so, SQLite need not create
            side files.
    """
    if is_alone and not any(path.with_name(f"{path.name}{end}").exists() for end in SIDE_FILES):
        return connect(path, mode="ro&immutable=1")
    connection = connect(path, mode="ro")
    try:
        # SQLite opens files at the first read, so a read-only directory refuses the -shm only now.
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # Without a WAL there is no writer, so SQLite need not create the files that coordinate with
        # writers. If there is a WAL or a rollback journal, SQLite has to read it.
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
            # SQLite's header has 100 bytes, with user_version at 60 and application_id at 68.
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
    # An older version is not refused here, as a migration's commit may still be in the WAL.
    if version > SCHEMA_VERSION:
        require_version(version, path)
    return version


def require_readable(path: Path) -> None:
    """Refuse a journal of another release, as far as its header shows that."""
    version = require_journal(path)
    # If there is a WAL, a committed migration may be in it and not yet in the header.
    if not path.with_name(path.name + "-wal").exists():
        require_version(version, path)


def require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a journal of another schema version, whether the header or only the WAL has it."""
    require_version(schema_version(connection), path)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the committed schema version, whether or not it has reached the header."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def require_version(version: int, path: Path) -> None:
    """Refuse a schema version that is not this release's."""
    told = f"{path}: schema version {version}; this release reads {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise JournalForeign(f"{told}: upgrade arena-league")
    if version < SCHEMA_VERSION:
        raise JournalOlder(
            f"{told}; going on with the run (arena launch --resume) brings it up to date"
        )


def require_sound(connection: sqlite3.Connection, path: Path, *, check: str) -> None:
    """Run a ``check`` of SQLite, ``quick_check`` or ``integrity_check``, and raise on damage."""
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
    """Run all statements of the ``with`` block in one transaction, or none of them."""
    # IMMEDIATE takes the write lock now. A transaction that took it at its first write could fail
    # halfway with SQLITE_BUSY.
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
        # The low byte is SQLite's primary code; the other bits refine it.
        if code & 0xFF in _CORRUPT or _NO_UTF8 in str(error):
            raise JournalCorrupt(_damaged(path, str(error))) from error
        kind = StorageUnavailable if code in _PASSING_CODES else StorageError
        raise kind(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        # Python could not decode SQLite's message, which quotes the damaged bytes.
        raise JournalCorrupt(_damaged(path, "a name or text that is no UTF-8")) from error
    except OSError as error:
        kind = StorageUnavailable if error.errno in _PASSING else StorageError
        raise kind(f"{error.filename or path}: {words_of(error)}") from error


def rename_durably(source: Path, target: Path) -> None:
    """Rename a finished file; on return its bytes and its new name are on disk."""
    # Sync the bytes first: after a crash the new name must not belong to an incomplete file.
    with source.open("rb") as file:
        os.fsync(file.fileno())
    failpoint("rename.synced")
    os.rename(source, target)
    failpoint("rename.renamed")
    # The new name is an entry of the directory, which needs an fsync of its own.
    sync_directory(target.parent)
    failpoint("rename.directory")


@collector_paused()
def load_tables(
    connection: sqlite3.Connection, path: Path, *, pairs: Sequence[str] | None = None
) -> Tables:
    """Return all rows of the controller's state; the caller has opened a transaction.

    Args:
        connection: Connection to the journal.
        path: Path of the journal, for messages.
        pairs: Kinds (``train``, ``evaluate``) of results of pairs to read; None reads all.

    Raises:
        JournalCorrupt: If a row is damaged.
    """

    def rows(table: SqlTable[RowT], where: str = "", given: Sequence[Value] = ()) -> list[RowT]:
        # The rowid gives the order of first writing, which is the order of the controller's tables
        # (`SqlTable.upsert`).
        return read_rows(connection, path, table, f"{where} ORDER BY rowid", given)

    def last(table: str, where: str = "") -> int:
        # This reads the index from its end, while max() with a filter would scan the whole table.
        query = f"SELECT sequence FROM {table} {where} ORDER BY sequence DESC LIMIT 1"
        found = connection.execute(query).fetchone()
        return 0 if found is None else int(found[0])

    runs = rows(RUN)
    if len(runs) != 1:
        raise JournalCorrupt(
            f"{path}: {len(runs)} rows for the run instead of 1{repair_hint(path)}"
        )
    archive = last_archive(connection, path)
    # The plus keeps SQLite from using the index, as sorting the rows that it finds takes longer
    # than one pass over the table.
    chosen = "" if pairs is None else f"WHERE +kind IN ({', '.join('?' * len(pairs))})"
    conditions: dict[str, tuple[str, Sequence[Value]]] = {
        # Most assignments are closed, and the controller does not need those.
        ASSIGNMENTS.name: ("WHERE status = 'queued'", ()),
        PAIRS.name: (chosen, pairs or ()),
    }
    kept: dict[str, Any] = {
        table.name: Table(table, rows(table, *conditions.get(table.name, ()))) for table in KEPT
    }
    return Tables(
        run=runs[0],
        **kept,
        # The archive has the last numbers if all of these rows have moved there.
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
    """Return rows of one table, selected by ``SELECT ... FROM table`` and the ``suffix``.

    Raises:
        JournalCorrupt: If a row is damaged.
    """
    selected = connection.execute(f"{table.select} {suffix}", parameters)
    # Close the cursor at a damaged row, too, as SQLite cannot close a writer with an open cursor.
    with row_errors(path, table), contextlib.closing(selected) as cursor:
        return [table.decode(table.unsealed(stored)) for stored in cursor]


@contextlib.contextmanager
def row_errors(path: Path, table: SqlTable[Any]) -> Iterator[None]:
    """Translate errors of decoding a row into `JournalCorrupt`."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        # A RecursionError is possible because damaged JSON may be nested without end.
        raise JournalCorrupt(
            f"{path}: a row of {table.name} is damaged: {error}{repair_hint(path)}"
        ) from error


def split_rows(
    connection: sqlite3.Connection, table: SqlTable[RowT]
) -> tuple[dict[int, RowT], list[int]]:
    """Return a table's readable rows by rowid, and the rowids of its damaged rows, in order."""
    sound: dict[int, RowT] = {}
    damaged: list[int] = []
    # Each row is read by a query of its own, so that a row that SQLite cannot decode does not hide
    # the rows after it.
    for (rowid,) in connection.execute(f"SELECT rowid FROM {table.name} ORDER BY rowid").fetchall():
        try:
            stored = connection.execute(f"{table.select} WHERE rowid = ?", [rowid]).fetchone()
            sound[rowid] = table.decode(table.unsealed(stored))
        except (ValueError, TypeError, RecursionError, sqlite3.OperationalError):
            damaged.append(rowid)
    return sound, damaged


def require_sealed(connection: sqlite3.Connection, path: Path) -> None:
    """Read every row of a journal and compare it with its seal (checksum).

    Raises:
        JournalCorrupt: If a row is damaged.
    """
    for table in TABLES:
        selected = connection.execute(table.select)
        with row_errors(path, table), contextlib.closing(selected) as cursor:
            for stored in cursor:
                table.unsealed(stored)


def last_archive(connection: sqlite3.Connection, path: Path) -> ArchiveRow:
    """Return the last range of rows that moved to an archive file; `BEGINNING` if none has."""
    suffix = "WHERE file != '' ORDER BY number DESC LIMIT 1"
    return next(iter(read_rows(connection, path, ARCHIVES, suffix)), BEGINNING)


def load_archives(connection: sqlite3.Connection, path: Path) -> list[ArchiveRow]:
    """Return the ranges of rows that were or will be archived, in order; `file` is empty before."""
    return read_rows(connection, path, ARCHIVES, "ORDER BY number")


_HEADER = struct.Struct(">8I")
"""Header of a WAL: magic number, version, page size, checkpoints, two salts, two checksums."""

_FRAME = struct.Struct(">6I")
"""Header of a frame: page, pages of the database (0: no commit), two salts, two checksums."""

_INDEX_FRAMES = struct.Struct("=16xI")
"""Beginning of the -shm file, whose fifth number, in native order, is that of valid frames."""

# On Linux, `time.monotonic` stops while a laptop sleeps and CLOCK_BOOTTIME does not. On other
# systems CLOCK_MONOTONIC counts the sleep.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BIG_ENDIAN = 1
"""Bit of the magic number that says that checksums are of big-endian numbers."""


def unreadable_commits(journal: Path, *, page_bytes: int) -> int:
    """Return the number of acknowledged commits in a journal's WAL that cannot be read.

    Call it while a connection that has read from the journal is open and no other process writes.

    Args:
        journal: The database.
        page_bytes: Size of its pages.
    """
    wal = journal.with_name(f"{journal.name}-wal")
    index = journal.with_name(f"{journal.name}-shm")
    try:
        with wal.open("rb") as file, index.open("rb") as shared:
            found = file.read(_HEADER.size)
            (num_valid,) = _INDEX_FRAMES.unpack(shared.read(_INDEX_FRAMES.size))
            if len(found) < _HEADER.size:
                return 0
            frame_bytes = _FRAME.size + page_bytes
            num_frames = (wal.stat().st_size - _HEADER.size) // frame_bytes
            frames = []
            for number in range(num_valid, num_frames):
                file.seek(_HEADER.size + number * frame_bytes)
                frames.append(_FRAME.unpack(file.read(_FRAME.size)))
    except FileNotFoundError:
        return 0
    if not frames:
        return 0
    # SQLite syncs the header before it writes frames, so a wrong checksum means damage; the salts
    # are then those of the first unread frame.
    salts = _HEADER.unpack(found)[4:6] if _is_sound(found) else frames[0][2:4]
    num_commits = sum(1 for frame in frames if frame[1] and frame[2:4] == salts)
    # While the machine runs, the frame that ends a commit is never written without those before it.
    # A power failure may leave only that frame of the last commit, which was not acknowledged then.
    began = time.time() - time.clock_gettime(_SINCE_BOOT)
    is_torn = wal.stat().st_mtime < began
    return max(num_commits - is_torn, 0)


def _is_sound(header: bytes) -> bool:
    """Return whether the checksum of a WAL's header is correct."""
    magic, *_, first, second = _HEADER.unpack(header)
    order = ">" if magic & _BIG_ENDIAN else "<"
    words = struct.unpack(f"{order}6I", header[:24])
    one = two = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return (one, two) == (first, second)
