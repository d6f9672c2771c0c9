"""Commits that wait for room, over a real journal: the same rows, for a limited time."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from arena.failpoints import armed
from populations.controller.server.commit_retry import (
    RETRY_S,
    commit_patiently,
)
from populations.errors import StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import EventRow, RunRow
from populations.storage.journal import Journal, JournalReader


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A new journal."""
    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as journal:
        yield journal


class Waiting:
    """A clock that only waiting moves, and all that a commit says."""

    def __init__(self, *, now_s: float = 1000.0, ends_after: float = float("inf")) -> None:
        self.now_s = now_s
        self.ends_after = ends_after
        self.waits: list[float] = []
        self.told: list[str] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds

    def commit(self, journal: Journal, rows: Sequence[Row]) -> None:
        commit_patiently(
            journal,
            rows,
            should_end=lambda: len(self.waits) >= self.ends_after,
            tell=self.told.append,
            clock=lambda: self.now_s,
            wait=self.wait,
        )


def never(*_: object) -> NoReturn:
    raise AssertionError("it has room: nothing is waited for, and nobody asks for the time")


def test_a_commit_with_room_asks_nothing(journal: Journal) -> None:
    commit_patiently(
        journal,
        events(3),
        should_end=never,
        tell=never,
        clock=never,
        wait=never,
    )
    assert journal.load().num_events == 3


def test_a_stop_does_not_keep_rows_from_a_journal_with_room(journal: Journal) -> None:
    Waiting(ends_after=0).commit(journal, events(3))
    assert journal.load().num_events == 3


def test_a_read_only_disk_is_waited_for_and_its_end_is_logged(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting()
    with armed("journal.begun=raise:EROFS") as plan, contextlib.ExitStack() as stack:
        hit = plan.hit
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # The disk can be written again after four tries.
        patch.setattr(plan, "hit", lambda name: hit(name) if len(waiting.waits) < 4 else None)
        with caplog.at_level(logging.WARNING):
            waiting.commit(journal, events(2))
    assert waiting.waits == [RETRY_S] * 4
    assert journal.load().num_events == 2
    messages = [record.getMessage() for record in caplog.records]
    assert sum("waits for room" in message for message in messages) == 4
    assert messages[-1] == "the journal has room again after 2.0 s"


def test_a_journal_that_somebody_else_writes_is_no_full_disk(
    journal: Journal, tmp_path: Path
) -> None:
    # Nobody else may: the run's lock says so. SQLite waits by itself, here not at all.
    journal._connection.execute("PRAGMA busy_timeout = 0")
    waiting = Waiting()
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="database is locked") as raised:
            waiting.commit(journal, events(2))
        assert not isinstance(raised.value, StorageUnavailable)
        other.execute("ROLLBACK")
    assert (waiting.waits, waiting.told) == ([], [])
    assert journal.load().num_events == 0
    waiting.commit(journal, events(2))
    assert journal.load().num_events == 2


def events(number: int) -> list[Row]:
    """Rows of some pages."""
    data = {"text": "x" * 1000}
    return [
        EventRow(sequence=sequence, time="now", kind="test", subject="", data=data)
        for sequence in range(1, number + 1)
    ]


def test_sqlites_own_full_disk_is_one_that_may_pass(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, [RunRow(run="r")]) as journal:
        before = journal.load()
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            assert journal.load() == before
            with JournalReader(path) as reader:
                reader.integrity_check()
            if len(waits) == 3:
                journal._connection.execute("PRAGMA max_page_count = 100000")

        commit(journal, events(50), wait=wait)
        assert len(waits) == 3
        assert journal.load().num_events == 50
    with JournalReader(path) as reader:
        reader.integrity_check()


def commit(journal: Journal, rows: Sequence[Row], *, wait: Callable[[float], None]) -> None:
    commit_patiently(
        journal,
        rows,
        should_end=lambda: False,
        tell=lambda reason: None,
        clock=lambda: 0.0,
        wait=wait,
    )


def test_a_failed_fsync_of_the_journal_is_never_tried_again(tmp_path: Path) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("it must end at once")

    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as journal:
        with armed("journal.written=raise:EIO"), pytest.raises(StorageError) as raised:
            commit(journal, events(1), wait=wait)
        assert not isinstance(raised.value, StorageUnavailable)
        assert journal.load().num_events == 0
