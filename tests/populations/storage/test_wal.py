from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from populations.records.rows import RunRow
from populations.storage.journal import Journal, JournalReader


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A journal whose WAL has lost a byte of its last commit, as if its writer had been killed."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    with Journal.create(path, [RunRow(run="r")]) as journal:
        for matches in range(3):
            journal.commit([RunRow(run="r", matches=matches)])
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{copy}{end}")
    with open(f"{copy}-wal", "r+b") as wal:
        wal.seek(-100, os.SEEK_END)
        wal.write(b"\xff")
    return copy


def num_lost(path: Path) -> int:
    with JournalReader(path) as reader:
        reader.load()
        return reader.unreadable_commits()


def test_the_mark_of_a_last_commit_counts_if_the_machine_has_run_since(torn: Path) -> None:
    assert num_lost(torn) == 1
    os.utime(f"{torn}-wal", (0, 0))
    assert num_lost(torn) == 0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux counts sleep apart")
def test_sleep_of_the_machine_is_no_power_failure(
    torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written before a long sleep, which this clock leaves out.
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    os.utime(f"{torn}-wal", (time.time() - 1.0,) * 2)
    assert num_lost(torn) == 1
