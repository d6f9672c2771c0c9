"""Work on the journal's file beside the run: backups, on a thread that nothing else waits for.

Tests: `tests/populations/controller/server/test_journal_upkeep.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from populations.config.sections import JournalConfig
from populations.errors import StorageError
from populations.storage.database import BACKUP
from populations.storage.journal import Journal

logger = logging.getLogger(__name__)

MAX_WRITTEN = 2
"""Most bytes that backups write while a run goes on, for each byte of committed rows."""


class JournalUpkeep:
    """Backups of a run's journal at their times. Owned by the controller's thread.

    Args:
        run_dir: Run directory.
        journal: The run's journal.
        config: Section ``journal`` of the configuration.
        clock: Monotonic clock, in seconds.

    Attributes:
        written_bytes: Bytes that backups have written.
    """

    def __init__(
        self, run_dir: Path, journal: Journal, config: JournalConfig, *, clock: Callable[[], float]
    ) -> None:
        self._backup = run_dir / BACKUP
        self._journal = journal
        self._config = config
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controller-journal")
        self._running: Future[int] | None = None
        self._backup_at_s = clock()
        self.written_bytes = self._last_bytes = 0

    def turn(self) -> None:
        """Begin what is due, without waiting for it."""
        if self._running is not None:
            if self._running.done():
                self.wait()
            return
        now_s = self._clock()
        if now_s - self._backup_at_s >= self._config.backup_every_s and self._has_budget():
            self._running = self._thread.submit(self._back_up)

    def wait(self) -> None:
        """Wait for what was begun."""
        if self._running is None:
            return
        self._last_bytes = self._running.result()
        self.written_bytes += self._last_bytes
        self._running = None
        # The pause begins when a backup ends: a slow disk is not kept busy by backups alone.
        self._backup_at_s = self._clock()

    def finish(self) -> None:
        """Make the last backup, and wait for it."""
        self._thread.submit(self._back_up)
        self._thread.shutdown(wait=True)

    def abandon(self) -> None:
        """Begin nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _has_budget(self) -> bool:
        # The next one is taken to be as large as the last one.
        planned_bytes = self.written_bytes + self._last_bytes
        return planned_bytes <= MAX_WRITTEN * self._journal.committed_bytes

    def _back_up(self) -> int:
        try:
            return self._journal.backup(self._backup)
        except StorageError as error:
            # The journal itself is whole; the next backup is tried in its time.
            logger.error("the journal's backup failed: %s", error)
            return 0
