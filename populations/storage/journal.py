"""The journal: the run's rows in SQLite, written by one connection, read by any number.

Guarantees:

- `Journal` is the only writer, and the only connection that checkpoints the WAL. The process that
opens it has the run's lock (`populations.storage.lock`), and only the thread that opens it uses it;
only `backup` may be called from another thread.
- Rows survive SIGKILL once `commit` has returned and, on a disk that honours fsync, power loss. A
commit that raised changed nothing. After each commit ``load()`` equals the rows in memory.
- A `JournalReader` never writes a row, works while a writer runs, after it was killed and after it
has ended, and never makes a writer wait.
- Every error of SQLite or the disk is a `StorageError`; damaged files, other files and newer
schemas are `JournalCorrupt`, and are not written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from arena.failpoints import failpoint
from populations.errors import StorageError
from populations.records.aggregates import PairRow, Row
from populations.records.rows import ArchiveRow, AssignmentRow, AssignmentStatus, EventRow, TallyRow
from populations.records.tables import (
    ARCHIVED,
    ASSIGNMENTS,
    EVENTS,
    PAIRS,
    SCHEMA,
    TALLIES,
    RowT,
    SqlTable,
    Tables,
    encode_row,
)
from populations.storage.archive import Filters, archived_rows, select_rows
from populations.storage.backup import back_up
from populations.storage.database import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    SIDE_FILES,
    connect,
    connect_reader,
    last_archive,
    load_archives,
    load_tables,
    read_rows,
    rename_durably,
    require_readable,
    require_schema,
    require_sound,
    storage_errors,
    transaction,
    unreadable_commits,
)
from populations.storage.migrations import migrate

ROWS_AT_ONCE = 10_000


class DetailReader:
    """Reader of events, assignments and tallies; base of `JournalReader` and of the writer.

    The writer also sees rows that it has not committed yet.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all calls within the block see the same committed state."""
        with storage_errors(self._path):
            # A plain BEGIN takes no lock; the first SELECT of the block fixes the state.
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with storage_errors(self._path):
                self._connection.execute("ROLLBACK")

    def events(
        self,
        *,
        after: int = 0,
        kinds: Sequence[str] | None = None,
        subject: str | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[EventRow]:
        """Return events in order of commit.

        Args:
            after: Lower limit of the sequence, exclusive.
            kinds: Kinds to return; None returns all.
            subject: Policy, ghost, learner or assignment that the events are about; None for any.
            limit: Maximum number of events; None for all.
            newest: Whether to return the last ``limit`` events instead of the first.
        """
        filters: Filters = {
            "kind": kinds,
            "subject": None if subject is None else [subject],
        }
        return self._select(EVENTS, after, filters, limit=limit, newest=newest)

    def assignments(
        self,
        *,
        after: int = 0,
        statuses: Sequence[AssignmentStatus] | None = None,
        kind: Literal["train", "evaluate"] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[AssignmentRow]:
        """Return assignments with their metrics, by id; the arguments are those of `events`."""
        filters: Filters = {
            "status": statuses,
            "kind": None if kind is None else [kind],
        }
        return self._select(ASSIGNMENTS, after, filters, limit=limit, newest=newest)

    def tallies(self, *, after: int = 0, limit: int | None = None) -> list[TallyRow]:
        """Return tallies in order of commit."""
        return self._select(TALLIES, after, {}, limit=limit, newest=False)

    def all_tallies(self, *, after: int = 0) -> Iterator[TallyRow]:
        """Yield every tally in order of commit, without loading all of them at once."""
        return self._all(TALLIES, after)

    def all_assignments(self, *, after: int = 0) -> Iterator[AssignmentRow]:
        """Yield every assignment by id, without loading all of them at once."""
        return self._all(ASSIGNMENTS, after)

    def all_events(self, *, after: int = 0) -> Iterator[EventRow]:
        """Yield every event in order of commit, without loading all of them at once."""
        return self._all(EVENTS, after)

    def _all(self, table: SqlTable[RowT], after: int) -> Iterator[RowT]:
        for row in archived_rows(self._connection, self._path, table, after=after):
            yield row
            after = getattr(row, table.key)
        # Rows are only appended, so consecutive pages by key are consistent without a snapshot.
        while rows := self._select(table, after, {}, limit=ROWS_AT_ONCE, newest=False):
            yield from rows
            after = getattr(rows[-1], table.key)

    def archives(self) -> list[ArchiveRow]:
        """Return the ranges of rows for the archive, in order; those with a file were moved."""
        with storage_errors(self._path):
            return load_archives(self._connection, self._path)

    def close(self) -> None:
        """Close the connection; repeating it does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _select(
        self,
        table: SqlTable[RowT],
        after: int,
        filters: Filters,
        *,
        limit: int | None,
        newest: bool,
    ) -> list[RowT]:
        with contextlib.ExitStack() as stack:
            # Several queries must see one state, as rows may move to the archive between them.
            if not self._connection.in_transaction:
                stack.enter_context(self.snapshot())
            with storage_errors(self._path):
                return select_rows(
                    self._connection,
                    self._path,
                    table,
                    after=after,
                    filters=filters,
                    limit=limit,
                    newest=newest,
                )


INCREMENTAL = 2
"""SQLite's auto_vacuum mode in which free pages are returned to the disk on demand."""

FREE_SHARE = 0.25
"""Share of free pages that a journal retains for new rows."""

_LEFTOVER = re.compile(r"\.tmp-[0-9a-f]{32}(-wal|-shm|-journal)?")


class Journal(DetailReader):
    """Only writer of a run's journal, under the run's lock; used by one thread.

    ::

        with Journal.open(path) as journal:
            tables = journal.load()
            journal.commit([replace(tables.run, state="running")])

    Attributes:
        committed_bytes: Size of all rows that were committed through this writer.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self.committed_bytes = 0
        # `require_place` compares inodes, as SQLite would silently continue to write to a deleted
        # file.
        self._inode = path.stat().st_ino

    @classmethod
    def create(cls, path: Path, rows: Sequence[Row]) -> Journal:
        """Create a journal with its first rows, atomically, and open it.

        Raises:
            StorageError: If there is a journal already, or the disk refuses.
        """
        if path.exists():
            raise StorageError(f"{path}: there is a journal already")
        # Encode rows before the file is created, so that an invalid row leaves no file.
        statements = [encode_row(row) for row in rows]
        temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
        try:
            with storage_errors(path):
                failpoint("journal.create")
                # SQLite would replay the WAL of a deleted journal into the new one.
                for suffix in SIDE_FILES:
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
                with contextlib.closing(connect(temporary, mode="rwc")) as connection:
                    connection.execute("PRAGMA synchronous = FULL")
                    # SQLite accepts this mode, which `shrink` needs, only before the first table.
                    connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                    with transaction(connection):
                        for sql in SCHEMA:
                            connection.execute(sql)
                        for sql, values in statements:
                            connection.execute(sql, values)
                rename_durably(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open an existing journal for writing, after a check of its structure.

        A journal of an older release is migrated first, and a copy of it stays in the directory.

        Raises:
            JournalCorrupt: If it is damaged, not a journal, or of a newer release.
            StorageError: If it cannot be opened.
        """
        migrate(path)
        with storage_errors(path), contextlib.ExitStack() as stack:
            _remove_leftovers(path)
            # Check with a separate connection. After a check, the same connection could switch to
            # WAL but not checkpoint, and a refused file must not be written to.
            with contextlib.closing(connect_reader(path)) as checker:
                require_schema(checker, path)
                require_sound(checker, path, check="quick_check")
            connection = stack.enter_context(contextlib.closing(connect(path, mode="rw")))
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StorageError(f"{path}: the file system cannot hold a WAL (mode {mode!r})")
            # With FULL a commit is on disk when it returns. Some builds of SQLite default to
            # NORMAL, with which a power loss may lose a WAL's last commits.
            connection.execute("PRAGMA synchronous = FULL")
            stack.pop_all()
            return cls(path, connection)

    def commit(self, rows: Sequence[Row]) -> None:
        """Insert rows, or replace rows with the same keys: all of them or, on error, none.

        Raises:
            StorageUnavailable: If the disk is full or read-only; the same rows may be committed
                again.
            StorageError: If the disk refuses otherwise, or the journal was moved or replaced.
            ValueError: If a row has a non-finite number.
        """
        # Encode rows before the transaction, so that an invalid row needs no rollback.
        statements = [encode_row(row) for row in rows]
        self.require_place()
        with storage_errors(self._path):
            failpoint("journal.commit")
            with transaction(self._connection):
                for sql, values in statements:
                    self._connection.execute(sql, values)
        self.committed_bytes += sum(
            len(value) if isinstance(value, str | bytes) else 8
            for _, values in statements
            for value in values
        )

    def mend(self, rowids: Mapping[SqlTable[Any], Sequence[int]], rows: Iterable[Row]) -> None:
        """Remove damaged rows and write others: all changes or, on error, none.

        Args:
            rowids: Rows to remove, by table.
            rows: Rows to write afterwards, one by one. An iterator may read from this writer, which
                has the rows before it, and an error that it raises rolls back all changes.

        Raises:
            StorageError: If the disk refuses.
        """
        with storage_errors(self._path), transaction(self._connection):
            for table, removed in rowids.items():
                self._connection.executemany(
                    f"DELETE FROM {table.name} WHERE rowid = ?", [(rowid,) for rowid in removed]
                )
            for row in rows:
                self._connection.execute(*encode_row(row))

    def require_place(self) -> None:
        """Check that the journal was not moved or deleted with its directory.

        Raises:
            StorageError: If it was, as SQLite would silently continue to write to the old file.
        """
        with storage_errors(self._path):
            if os.stat(self._path).st_ino != self._inode:
                raise StorageError(f"{self._path}: another file has taken the journal's place")

    def load(self) -> Tables:
        """Return all rows of the controller's state.

        Raises:
            JournalCorrupt: If a row cannot be read.
        """
        with storage_errors(self._path):
            return load_tables(self._connection, self._path)

    def remove_archived(self, *, limit: int) -> int:
        """Remove at most ``limit`` rows that are in archive files, and return how many.

        Raises:
            StorageUnavailable: If the disk is full or read-only.
            StorageError: If the disk refuses otherwise.
        """
        removed = 0
        with storage_errors(self._path):
            last = last_archive(self._connection, self._path)
            failpoint("archive.remove")
            with transaction(self._connection):
                for table in ARCHIVED:
                    cursor = self._connection.execute(
                        f"DELETE FROM {table.name} WHERE {table.key} IN (SELECT {table.key} "
                        f"FROM {table.name} WHERE {table.key} <= ? ORDER BY {table.key} LIMIT ?)",
                        (getattr(last, table.name), limit - removed),
                    )
                    removed += cursor.rowcount
        return removed

    def shrink(self, *, pages: int) -> bool:
        """Return free pages to the file system if they exceed ``FREE_SHARE`` of all pages.

        Args:
            pages: Maximum number of pages to return.

        Returns:
            Whether there may be more pages to return.

        Raises:
            StorageUnavailable: If the disk is full or read-only.
            StorageError: If the disk refuses otherwise.
        """
        with storage_errors(self._path):
            free, total = (
                int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("freelist_count", "page_count")
            )
            if free <= FREE_SHARE * total:
                return False
            failpoint("journal.shrink")
            # Each step of the statement frees one page, and `execute` would only do the first.
            self._connection.executescript(f"PRAGMA incremental_vacuum({pages})")
            return True

    def backup(self, path: Path) -> int:
        """Update the copy at ``path`` to the last committed state, atomically.

        It uses a separate connection, so it may be called from another thread.

        Returns:
            Number of bytes written.

        Raises:
            StorageError: If the disk refuses; an older copy stays.
            JournalCorrupt: If the journal is damaged; an older copy stays.
        """
        return back_up(self._path, path)

    def close(self) -> None:
        """Move the WAL into the journal and close it; repeating it does nothing.

        Raises:
            StorageError: If the disk refuses; no committed row is lost.
        """
        with storage_errors(self._path):
            try:
                # Without a WAL the journal is one file, which can be read in a read-only directory.
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.ProgrammingError:
                return  # The connection was closed before.
            finally:
                self._connection.close()


def _remove_leftovers(path: Path) -> None:
    """Remove unfinished journals and copies that a killed process has left."""
    # The caller has the run's lock, so no other process is writing such a file now.
    for leftover in path.parent.glob(".tmp-*"):
        if _LEFTOVER.fullmatch(leftover.name) and leftover.is_file():
            leftover.unlink()


class JournalReader(DetailReader):
    """Reader of a journal, independent of its writer; used by one thread for a short time.

    Each call sees one committed state.

    Args:
        path: The journal.
        is_alone: Whether no process can write meanwhile. If so, no side files are created.

    Raises:
        JournalCorrupt: If it is damaged, not a journal, or of a newer release.
        StorageError: If it cannot be opened.
    """

    def __init__(self, path: Path, *, is_alone: bool = False) -> None:
        require_readable(path)
        with storage_errors(path), contextlib.ExitStack() as stack:
            reader = connect_reader(path, is_alone=is_alone)
            connection = stack.enter_context(contextlib.closing(reader))
            connection.execute("PRAGMA query_only = ON")
            require_schema(connection, path)
            stack.pop_all()
            super().__init__(path, connection)

    def load(self, *, pairs: Sequence[str] | None = None) -> Tables:
        """Return all rows of the controller's state.

        Args:
            pairs: Kinds of the results of pairs to read; None reads all. Most rows are results of
                pairs, so ``()`` loads much faster.
        """
        with contextlib.ExitStack() as stack:
            # SQLite does not nest transactions, so an open `snapshot` is used as it is.
            if not self._connection.in_transaction:
                stack.enter_context(self.snapshot())
            with storage_errors(self._path):
                return load_tables(self._connection, self._path, pairs=pairs)

    def pairs(
        self, *, kind: Literal["train", "evaluate"], between: tuple[str, str] | None = None
    ) -> list[PairRow]:
        """Return the results of pairs of entrants, in order of their first match.

        Args:
            kind: Kind of the matches.
            between: Two entrants, in any order; None returns all pairs.
        """
        where, values = "WHERE kind = ?", [str(kind)]
        if between is not None:
            # A condition for each order lets SQLite use the key's index.
            where += " AND (first = ? AND second = ? OR first = ? AND second = ?)"
            values += [*between, *reversed(between)]
        with storage_errors(self._path):
            suffix = f"{where} ORDER BY rowid"
            return read_rows(self._connection, self._path, PAIRS, suffix, values)

    def unreadable_commits(self) -> int:
        """Return the number of commits in a damaged WAL that can no longer be read.

        It is 0 for an intact WAL. No other process may write during the call.
        """
        with storage_errors(self._path):
            (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
            return unreadable_commits(self._path, page_bytes=page_bytes)

    def integrity_check(self) -> None:
        """Read and check every page and index.

        Raises:
            JournalCorrupt: If a page or an index is damaged.
        """
        with storage_errors(self._path):
            require_sound(self._connection, self._path, check="integrity_check")
