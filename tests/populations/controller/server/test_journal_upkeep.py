from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from populations.config.sections import JournalConfig
from populations.controller.server.journal_upkeep import JournalUpkeep
from populations.errors import StorageUnavailable
from populations.records.rows import EventRow, RunRow
from populations.records.tables import Tables
from populations.storage.database import BACKUP
from populations.storage.journal import Journal, JournalReader

PAUSE_S = 60.0


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


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
    return Clock()


@pytest.fixture
def upkeep(tmp_path: Path, journal: Journal, clock: Clock) -> Iterator[JournalUpkeep]:
    upkeep = JournalUpkeep(tmp_path, journal, JournalConfig(backup_every_s=PAUSE_S), clock=clock)
    yield upkeep
    upkeep.abandon()


def tables_of(journal: Journal, *, elapsed_s: float = 0.0) -> Tables:
    tables = journal.load()
    return replace(tables, run=replace(tables.run, elapsed_s=elapsed_s))


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
        # Only the first one was not foreseen.
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
    # While it lasts no other one begins, and the controller goes on.
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
    """Texts of 3 + 5 + 1 + 2 ("{}") bytes, and a number of 8."""
    with Journal.create(tmp_path / "journal.db", [RunRow(run="r")]) as journal:
        assert journal.committed_bytes == 0
        journal.commit([EventRow(sequence=1, time="now", kind="found", subject="s", data={})])
        assert journal.committed_bytes == 3 + 5 + 1 + 2 + 8
