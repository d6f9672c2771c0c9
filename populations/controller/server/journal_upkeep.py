"""Upkeep of the journal's file while a run goes on, and commits that wait for disk space.

Upkeep makes backups and moves old details from the journal to the archive. Long work runs on a
thread that nothing else waits for. Work that only the journal's writer can do is done in steps of
milliseconds.

Tests: `tests/populations/controller/server/test_journal_upkeep.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

from arena.wire.messages import Evaluate, Train
from populations.config.message_sizes import check_sendable
from populations.config.sections import JournalConfig
from populations.controller.state.events import Command, SendMessage
from populations.errors import StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import BEGINNING, ArchiveRow
from populations.records.tables import Tables
from populations.storage.archive import remove_unnamed, write_archive
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal

logger = logging.getLogger(__name__)

MAX_WRITTEN = 2
"""Bound on the bytes that backups write during a run, per byte of committed rows."""

RANGES = 24
"""Number of ranges, each a file of the archive, in ``journal.keep_detail_hours``."""

STEP_S = 1.0
"""Pause between two steps of the writer's own work."""

ROWS_A_STEP = 500
PAGES_A_STEP = 200
RETRY_S = 60.0
"""Seconds of pause after the disk has refused."""


def one_thread(name: str) -> Executor:
    """Make a worker thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


class JournalUpkeep:
    """Upkeep of a run's journal. Owned by the controller's thread.

    Args:
        run_dir: Run directory.
        journal: The run's journal.
        config: Section ``journal`` of the configuration.
        clock: Monotonic clock, in seconds.
        worker: Function that makes the thread for long work.

    Attributes:
        written_bytes: Bytes that backups have written.
    """

    def __init__(
        self,
        run_dir: Path,
        journal: Journal,
        config: JournalConfig,
        *,
        clock: Callable[[], float],
        worker: Callable[[str], Executor] = one_thread,
    ) -> None:
        self._run_dir = run_dir
        self._journal = journal
        self._config = config
        self._clock = clock
        self._thread = worker("controller-journal")
        self._running: Future[int | ArchiveRow | None] | None = None
        archives = journal.archives()
        remove_unnamed(run_dir, archives)
        self._ranges = [row for row in archives if not row.file]
        """Ranges of details that are still in the journal, oldest first."""
        self._last_range = archives[-1] if archives else BEGINNING
        # A killed process may have left rows that are in the archive already.
        self._has_archived_rows = True
        self.written_bytes = self._last_bytes = 0
        self._backup_at_s = clock()
        self._step_at_s = self._retry_at_s = -1e9

    def turn(self, tables: Tables) -> None:
        """Do a short step of the writer's own work, and begin long work that is due.

        Raises:
            StorageError: If the disk fails in a way that will not pass.
        """
        if self._running is not None and self._running.done():
            self.wait()
        now_s = self._clock()
        if now_s < self._retry_at_s:
            return
        if now_s - self._step_at_s >= STEP_S:
            self._step_at_s = now_s
            self._patiently(lambda: self._step(tables))
        if self._running is None:
            self._begin(tables, now_s)

    def wait(self) -> None:
        """Wait for the long work that was begun, and apply its result."""
        if self._running is None:
            return
        result = self._running.result()
        self._running = None
        match result:
            case int():
                self._last_bytes = result
                self.written_bytes += result
                # The pause counts from the end of a backup, so that a slow disk is not always busy.
                self._backup_at_s = self._clock()
            case ArchiveRow():
                self._patiently(lambda: self._name(result))
            case None:
                self._retry_at_s = self._clock() + RETRY_S

    def finish(self) -> None:
        """Make the last backup, and wait for it."""
        self.wait()
        self._running = self._thread.submit(self._back_up)
        self._thread.shutdown(wait=True)

    def abandon(self) -> None:
        """Cancel work that was not begun, and begin no more, without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _patiently(self, work: Callable[[], None]) -> None:
        """Do work that is tried again later if the disk has no room now."""
        try:
            work()
        except StorageUnavailable as error:
            logger.warning("the journal's upkeep waits for room: %s", error)
            self._retry_at_s = self._clock() + RETRY_S

    def _step(self, tables: Tables) -> None:
        self._mark(tables)
        if self._has_archived_rows:
            self._has_archived_rows = self._journal.remove_archived(limit=ROWS_A_STEP) > 0
        else:
            self._journal.shrink(pages=PAGES_A_STEP)

    def _mark(self, tables: Tables) -> None:
        """End a range of details, whose row records how old they are."""
        last, run = self._last_range, tables.run
        if self._keep_s is None or run.elapsed_s - last.elapsed_s < self._keep_s / RANGES:
            return
        row = ArchiveRow(
            number=last.number + 1,
            elapsed_s=run.elapsed_s,
            tallies=tables.num_tallies,
            evaluated=tables.last_evaluation_sequence,
            assignments=run.next_assignment - 1,
            events=tables.num_events,
        )
        self._journal.commit([row])
        self._ranges.append(row)
        self._last_range = row

    def _name(self, row: ArchiveRow) -> None:
        """Record a file of the archive in the journal, so that its rows are read from the file."""
        self._journal.commit([row])
        self._ranges.pop(0)
        self._has_archived_rows = True

    def _begin(self, tables: Tables, now_s: float) -> None:
        oldest = self._ranges[0] if self._ranges else None
        age_s = 0.0 if oldest is None else tables.run.elapsed_s - oldest.elapsed_s
        if oldest is not None and self._keep_s is not None and age_s >= self._keep_s:
            self._running = self._thread.submit(self._archive, oldest)
        elif now_s - self._backup_at_s >= self._config.backup_every_s and self._has_budget():
            self._running = self._thread.submit(self._back_up)

    @property
    def _keep_s(self) -> float | None:
        hours = self._config.keep_detail_hours
        return None if hours is None else 3600.0 * hours

    def _has_budget(self) -> bool:
        # The next backup is assumed to be as large as the last one.
        planned_bytes = self.written_bytes + self._last_bytes
        return planned_bytes <= MAX_WRITTEN * self._journal.committed_bytes

    def _archive(self, row: ArchiveRow) -> ArchiveRow | None:
        try:
            return write_archive(self._run_dir / JOURNAL, row)
        except StorageError as error:
            # The journal is unchanged, so the archive is tried again later.
            logger.error("details could not leave the journal: %s", error)
            return None

    def _back_up(self) -> int:
        """Return the bytes that a backup has written."""
        try:
            return self._journal.backup(self._run_dir / BACKUP)
        except StorageError as error:
            # The journal itself is intact, so the next backup is made at its usual time.
            logger.error("the journal's backup failed: %s", error)
            return 0


STORAGE_GRACE_S = 60.0
"""Seconds for which commits wait for room on the disk before the run ends."""

COMMIT_RETRY_S = 0.5


def commit_patiently(
    journal: Journal,
    rows: Sequence[Row],
    *,
    should_end: Callable[[], bool],
    tell: Callable[[str], None],
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> None:
    """Commit rows, and try the same rows again while the disk is full or read-only.

    Args:
        journal: Journal that takes the rows.
        rows: Rows to commit together.
        should_end: Function that says whether a stop was requested, so that waiting ends.
        tell: Function that is called with the reason of each failure.
        clock: Monotonic clock, in seconds.
        wait: Function that sleeps for some seconds.

    Raises:
        StorageUnavailable: If that lasts longer than `STORAGE_GRACE_S`; nothing was committed.
        StorageError: At once, if the disk fails otherwise: a failed fsync is never tried again.
    """
    began_s: float | None = None
    # No event is handled meanwhile, because the state in memory is ahead of the journal, and
    # messages that follow from the rows must wait for the commit.
    while True:
        try:
            journal.commit(rows)
        except StorageUnavailable as error:
            now_s = clock()
            # The grace period counts from the first refusal.
            began_s = now_s if began_s is None else began_s
            if should_end() or now_s - began_s >= STORAGE_GRACE_S:
                raise StorageUnavailable(
                    f"{error}, for {now_s - began_s:.0f} s. Nothing that was acknowledged is lost: "
                    "make room and go on with --resume"
                ) from error
            logger.error("the journal waits for room: %s", error)
            tell(str(error))
            wait(COMMIT_RETRY_S)
        else:
            if began_s is not None:
                logger.warning("the journal has room again after %.1f s", clock() - began_s)
            return


def check_commands(commands: Iterable[Command]) -> None:
    """Refuse assignments that cannot be sent, before they are journaled.

    Raises:
        WireError: If an assignment cannot be sent.
    """
    # Each resume would try to send a journaled assignment again.
    for command in commands:
        if isinstance(command, SendMessage) and isinstance(command.message, Train | Evaluate):
            check_sendable(command.message)
