"""Reading of a run's details: tallies, assignments and events, from the journal and its archive.

Tests: `tests/populations/storage/test_archive.py`, `tests/populations/storage/test_journal.py`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from populations.records.rows import (
    ArchiveRow,
    AssignmentRow,
    AssignmentStatus,
    EventRow,
    TallyRow,
)
from populations.records.tables import ASSIGNMENTS, EVENTS, TALLIES, RowT, Table
from populations.storage.archive import Filters, archived_rows, select_rows
from populations.storage.database import storage_errors
from populations.storage.loading import last_archive, load_archives

ROWS_AT_ONCE = 10_000


class DetailReader:
    """Reader of details: base of `populations.storage.journal.JournalReader`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all calls within the block see the same committed state."""
        with storage_errors(self._path):
            # A plain BEGIN is deferred: the first SELECT of the block fixes the state that it sees.
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
            kinds: Kinds to return. None: all.
            subject: Policy, ghost, learner or assignment that they are about. None: any.
            limit: Most events to return.
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
        """Yield every tally in order of commit, without holding all in memory."""
        return self._all(TALLIES, after)

    def all_assignments(self, *, after: int = 0) -> Iterator[AssignmentRow]:
        """Yield every assignment by id, without holding all in memory."""
        return self._all(ASSIGNMENTS, after)

    def all_events(self, *, after: int = 0) -> Iterator[EventRow]:
        """Yield every event in order of commit, without holding all in memory."""
        return self._all(EVENTS, after)

    def _all(self, table: Table[RowT], after: int) -> Iterator[RowT]:
        for row in archived_rows(self._connection, self._path, table, after=after):
            yield row
            after = getattr(row, table.key)
        # Rows are only added at the end, so pages by key fit together without a snapshot.
        while rows := self._select(table, after, {}, limit=ROWS_AT_ONCE, newest=False):
            yield from rows
            after = getattr(rows[-1], table.key)

    def recalled_events(self, *, kinds: Sequence[str]) -> list[EventRow]:
        """Return the events of some kinds that a resumed controller needs, in order.

        Those that have left the journal are what `ArchiveRow.recalled` has kept of them.
        """
        with storage_errors(self._path):
            last = last_archive(self._connection, self._path)
        kept = [event for event in last.recalled if event.kind in kinds]
        return kept + self.events(after=last.events, kinds=kinds)

    def archives(self) -> list[ArchiveRow]:
        """Return the ranges of details, in order; those with a file have left the journal."""
        with storage_errors(self._path):
            return load_archives(self._connection, self._path)

    def _select(
        self,
        table: Table[RowT],
        after: int,
        filters: Filters,
        *,
        limit: int | None,
        newest: bool,
    ) -> list[RowT]:
        with contextlib.ExitStack() as stack:
            # One state: rows may leave the journal between two looks.
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
