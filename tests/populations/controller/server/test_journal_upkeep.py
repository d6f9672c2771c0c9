from __future__ import annotations

import contextlib
import dataclasses
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from arena.failpoints import armed
from populations.config.sections import JournalConfig
from populations.controller.server.journal_upkeep import (
    COMMIT_RETRY_S,
    JournalUpkeep,
    commit_patiently,
)
from populations.errors import StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import EventRow, RunRow
from populations.records.tables import Tables
from populations.storage.database import BACKUP
from populations.storage.journal import Journal, JournalReader
from tests.support import Clock

PAUSE_S = 60.0


class CountingJournal(Journal):
    """Counts backups, which take what they are told to take."""

    written_bytes = 0
    num_backups = 0

    def backup(self, path: Path) -> int:
        del path
        self.num_backups += 1
        return self.written_bytes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[CountingJournal]:
    Journal.create(tmp_path / "journal.db", [RunRow(run="r")]).close()
    with CountingJournal.open(tmp_path / "journal.db") as journal:
        assert isinstance(journal, CountingJournal)
        yield journal


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def upkeep(tmp_path: Path, journal: Journal, clock: Clock) -> Iterator[JournalUpkeep]:
    upkeep = JournalUpkeep(tmp_path, journal, JournalConfig(backup_every_s=PAUSE_S), clock=clock)
    yield upkeep
    upkeep.abandon()


def tables_of(journal: Journal, *, elapsed_s: float = 0.0) -> Tables:
    tables = journal.load()
    return dataclasses.replace(tables, run=replace(tables.run, elapsed_s=elapsed_s))


def turn(upkeep: JournalUpkeep, journal: Journal) -> None:
    upkeep.turn(tables_of(journal))
    upkeep.wait()


def test_a_pause_lies_between_backups(
    journal: CountingJournal, upkeep: JournalUpkeep, clock: Clock
) -> None:
    for seconds, num_backups in ((59.0, 0), (1.0, 1), (59.0, 1), (1.0, 2), (600.0, 3)):
        clock.now_s += seconds
        turn(upkeep, journal)
        turn(upkeep, journal)
        assert journal.num_backups == num_backups


def test_backups_write_twice_what_is_recorded_at_most(
    journal: CountingJournal, upkeep: JournalUpkeep, clock: Clock
) -> None:
    """Backups of 1,000 bytes, and a turn for each hundred bytes: one for each 500 bytes."""
    journal.written_bytes = 1000
    counts = []
    for step in range(31):
        journal.committed_bytes = 100 * step
        clock.now_s += PAUSE_S
        turn(upkeep, journal)
        counts.append(journal.num_backups)
        # Only the first backup comes unplanned.
        assert upkeep.written_bytes <= max(1000, 2 * journal.committed_bytes)
    assert [counts.index(number) for number in range(1, 6)] == [0, 10, 15, 20, 25]


def test_nothing_waits_for_a_backup(
    journal: CountingJournal,
    upkeep: JournalUpkeep,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(path: Path) -> int:
        begun.set()
        assert may_end.wait(30.0)
        return CountingJournal.backup(journal, path)

    monkeypatch.setattr(journal, "backup", slow)
    clock.now_s += PAUSE_S
    upkeep.turn(tables_of(journal))
    assert begun.wait(30.0)
    # While it lasts no other backup begins, and the controller continues.
    clock.now_s += 10 * PAUSE_S
    upkeep.turn(tables_of(journal))
    assert journal.num_backups == 0
    may_end.set()
    upkeep.wait()
    assert journal.num_backups == 1
    upkeep.turn(tables_of(journal))
    upkeep.wait()
    assert journal.num_backups == 1, "the pause begins when it ended"


def test_a_backup_that_fails_is_tried_again(tmp_path: Path, clock: Clock) -> None:
    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as journal:
        upkeep = JournalUpkeep(tmp_path, journal, JournalConfig(backup_every_s=1.0), clock=clock)
        with pytest.MonkeyPatch.context() as patch:

            def full(path: Path) -> int:
                raise StorageUnavailable(f"{path}: no room")

            patch.setattr(journal, "backup", full)
            clock.now_s += 1.0
            turn(upkeep, journal)
        assert not (tmp_path / BACKUP).exists()
        clock.now_s += 1.0
        turn(upkeep, journal)
        assert (tmp_path / BACKUP).exists()
        journal.commit([EventRow(sequence=1, time="", kind="k", subject="", data={})])
        upkeep.finish()
    with JournalReader(tmp_path / BACKUP) as reader:
        assert len(reader.events()) == 1


def test_committed_bytes_are_those_of_rows(tmp_path: Path) -> None:
    """Texts of 3 + 5 + 1 + 2 ("{}") bytes, and two numbers of 8: the sequence and the seal."""
    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as journal:
        assert journal.committed_bytes == 0
        journal.commit([EventRow(sequence=1, time="now", kind="found", subject="s", data={})])
        assert journal.committed_bytes == 3 + 5 + 1 + 2 + 8 + 8


HOUR_S = 3600.0


def grow(journal: Journal, hour: int) -> Tables:
    """An event for each hour of the run."""
    event = EventRow(sequence=hour, time="", kind="k", subject="", data={"hour": hour})
    journal.commit([event, RunRow(run="r", elapsed_s=hour * HOUR_S)])
    return journal.load()


def in_journal(journal: Journal) -> list[int]:
    """Events that the journal itself has."""
    rows = journal._connection.execute("SELECT sequence FROM events ORDER BY sequence")
    return [sequence for (sequence,) in rows]


@pytest.fixture
def kept_for_a_day(
    tmp_path: Path, journal: CountingJournal, clock: Clock
) -> Iterator[JournalUpkeep]:
    config = JournalConfig(keep_detail_hours=24.0, backup_every_s=10**7)
    upkeep = JournalUpkeep(tmp_path, journal, config, clock=clock)
    yield upkeep
    upkeep.abandon()


def test_details_leave_the_journal_after_their_time(
    journal: CountingJournal, kept_for_a_day: JournalUpkeep, clock: Clock
) -> None:
    upkeep = kept_for_a_day
    for hour in range(1, 41):
        tables = grow(journal, hour)
        for _ in range(3):
            # Naming a file and removing its rows are two separate steps.
            clock.now_s += 60.0
            upkeep.turn(tables)
            upkeep.wait()
        rows = journal.archives()
        # A range ends each hour and is archived when its end is a day old.
        assert [row.events for row in rows] == list(range(1, hour + 1))
        assert [row.number for row in rows if row.file] == list(range(1, hour - 23))
        assert in_journal(journal) == list(range(max(hour - 23, 1), hour + 1))
        assert journal.load() == tables
    with JournalReader(journal._path) as reader:
        assert [row.data["hour"] for row in reader.events()] == list(range(1, 41))


def test_a_resumed_run_knows_the_age_of_its_details(
    tmp_path: Path, journal: CountingJournal, kept_for_a_day: JournalUpkeep, clock: Clock
) -> None:
    for hour in range(1, 12):
        tables = grow(journal, hour)
        clock.now_s += 60.0
        kept_for_a_day.turn(tables)
        kept_for_a_day.wait()
    # The kill came after the file was written and before the journal named it; the resume keeps two
    # hours.
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "000001.jsonl.zst").write_bytes(b"half of")
    config = JournalConfig(keep_detail_hours=2.0, backup_every_s=10**7)
    resumed = JournalUpkeep(tmp_path, journal, config, clock=clock)
    assert not list((tmp_path / "archive").iterdir())
    for _ in range(30):
        clock.now_s += 60.0
        resumed.turn(tables)
        resumed.wait()
    resumed.abandon()
    assert [row.number for row in journal.archives() if row.file] == list(range(1, 10))
    assert in_journal(journal) == [10, 11]
    # Another resume keeps all rows.
    kept = JournalUpkeep(tmp_path, journal, JournalConfig(keep_detail_hours=None), clock=clock)
    tables = grow(journal, 12)
    clock.now_s += 60.0
    kept.turn(dataclasses.replace(tables, run=replace(tables.run, elapsed_s=1e6 * HOUR_S)))
    kept.wait()
    kept.abandon()
    assert in_journal(journal) == [10, 11, 12]
    with JournalReader(journal._path) as reader:
        assert len(reader.events()) == 12


@pytest.mark.parametrize("point", ["archive.begin", "rename.renamed", "journal.begun"])
def test_a_full_disk_is_waited_for(
    journal: CountingJournal, kept_for_a_day: JournalUpkeep, clock: Clock, point: str
) -> None:
    """Whether it refuses the file, or the journal's own rows."""
    upkeep = kept_for_a_day
    upkeep.turn(grow(journal, 1))
    tables = grow(journal, 25)
    assert [row.file for row in journal.archives()] == [""]
    clock.now_s += 60.0
    with armed(f"{point}=raise:ENOSPC"):
        for _ in range(3):
            upkeep.turn(tables)
            upkeep.wait()
    assert not [row for row in journal.archives() if row.file]
    assert in_journal(journal) == [1, 25]
    # The retry waits, because a full disk should not be tried ten times a second.
    clock.now_s += 1.0
    upkeep.turn(tables)
    upkeep.wait()
    assert not [row for row in journal.archives() if row.file]
    for _ in range(3):
        clock.now_s += 60.0
        upkeep.turn(tables)
        upkeep.wait()
    assert [row.number for row in journal.archives() if row.file] == [1]
    assert in_journal(journal) == [25]


def test_a_disk_that_fails_ends_the_run(
    journal: CountingJournal, kept_for_a_day: JournalUpkeep
) -> None:
    with armed("journal.begun=raise:EIO"), pytest.raises(StorageError):
        kept_for_a_day.turn(tables_of(journal, elapsed_s=HOUR_S))


@pytest.fixture
def new_journal(tmp_path: Path) -> Iterator[Journal]:
    """A new journal."""
    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as new_journal:
        yield new_journal


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

    def commit(self, new_journal: Journal, rows: Sequence[Row]) -> None:
        commit_patiently(
            new_journal,
            rows,
            should_end=lambda: len(self.waits) >= self.ends_after,
            tell=self.told.append,
            clock=lambda: self.now_s,
            wait=self.wait,
        )


def never(*_: object) -> NoReturn:
    raise AssertionError("it has room: nothing is waited for, and nobody asks for the time")


def test_a_commit_with_room_asks_nothing(new_journal: Journal) -> None:
    commit_patiently(
        new_journal,
        events(3),
        should_end=never,
        tell=never,
        clock=never,
        wait=never,
    )
    assert new_journal.load().num_events == 3


def test_a_stop_does_not_keep_rows_from_a_journal_with_room(new_journal: Journal) -> None:
    Waiting(ends_after=0).commit(new_journal, events(3))
    assert new_journal.load().num_events == 3


def test_a_read_only_disk_is_waited_for_and_its_end_is_logged(
    new_journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting()
    with armed("journal.begun=raise:EROFS") as plan, contextlib.ExitStack() as stack:
        hit = plan.hit
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # The disk can be written again after four tries.
        patch.setattr(plan, "hit", lambda name: hit(name) if len(waiting.waits) < 4 else None)
        with caplog.at_level(logging.WARNING):
            waiting.commit(new_journal, events(2))
    assert waiting.waits == [COMMIT_RETRY_S] * 4
    assert new_journal.load().num_events == 2
    messages = [record.getMessage() for record in caplog.records]
    assert sum("waits for room" in message for message in messages) == 4
    assert messages[-1] == "the journal has room again after 2.0 s"


def test_a_journal_that_somebody_else_writes_is_no_full_disk(
    new_journal: Journal, tmp_path: Path
) -> None:
    # The run's lock excludes other writers. SQLite would wait by itself, which is disabled here.
    new_journal._connection.execute("PRAGMA busy_timeout = 0")
    waiting = Waiting()
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="database is locked") as raised:
            waiting.commit(new_journal, events(2))
        assert not isinstance(raised.value, StorageUnavailable)
        other.execute("ROLLBACK")
    assert (waiting.waits, waiting.told) == ([], [])
    assert new_journal.load().num_events == 0
    waiting.commit(new_journal, events(2))
    assert new_journal.load().num_events == 2


def events(number: int) -> list[Row]:
    """Rows of some pages."""
    data = {"text": "x" * 1000}
    return [
        EventRow(sequence=sequence, time="now", kind="test", subject="", data=data)
        for sequence in range(1, number + 1)
    ]


def test_sqlites_own_full_disk_is_one_that_may_pass(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, [RunRow(run="r")]) as new_journal:
        before = new_journal.load()
        pages = new_journal._connection.execute("PRAGMA page_count").fetchone()[0]
        new_journal._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            assert new_journal.load() == before
            with JournalReader(path) as reader:
                reader.integrity_check()
            if len(waits) == 3:
                new_journal._connection.execute("PRAGMA max_page_count = 100000")

        commit(new_journal, events(50), wait=wait)
        assert len(waits) == 3
        assert new_journal.load().num_events == 50
    with JournalReader(path) as reader:
        reader.integrity_check()


def commit(new_journal: Journal, rows: Sequence[Row], *, wait: Callable[[float], None]) -> None:
    commit_patiently(
        new_journal,
        rows,
        should_end=lambda: False,
        tell=lambda reason: None,
        clock=lambda: 0.0,
        wait=wait,
    )


def test_a_failed_fsync_of_the_journal_is_never_tried_again(tmp_path: Path) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("it must end at once")

    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as new_journal:
        with armed("journal.written=raise:EIO"), pytest.raises(StorageError) as raised:
            commit(new_journal, events(1), wait=wait)
        assert not isinstance(raised.value, StorageUnavailable)
        assert new_journal.load().num_events == 0
