from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.records.rows import EventRow
from populations.storage.journal import Journal
from tools.web.runs import LEAST_S, Run, named_runs


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_document_is_made_again_when_the_run_has_changed(board_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(board_run, path)
    clock = Clock()
    run = Run(path, "run", clock=clock)
    first = run.etag(["events"])
    clock.now_s = 1000.0
    assert run.etag(["events"]) == first
    event = EventRow(
        sequence=1, time="2026-01-01T00:00:00+00:00", kind="kept", subject="player/p000", data={}
    )
    with Journal.open(path / "journal.db") as journal:
        journal.commit([event])
    assert run.etag(["events"]) != first
    assert [line["sequence"] for line in run.documents(["events"])["events"]["events"]] == [1]  # type: ignore[attr-defined]


def test_readers_of_a_busy_run_share_a_document(board_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(board_run, path)
    clock = Clock()
    run = Run(path, "run", clock=clock)
    first = run.etag(["standings"])
    (path / "status.json").write_text("{}")
    clock.now_s = LEAST_S / 2
    assert run.etag(["standings"]) == first
    clock.now_s = LEAST_S
    assert run.etag(["standings"]) != first


def test_no_read_keeps_the_journal_open(board_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(board_run, path)
    Run(path, "run").documents(["standings", "events"])
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [name for name in opened if name.startswith(str(path))]


def test_names_of_runs_are_plain(board_run: Path, tmp_path: Path) -> None:
    odd = tmp_path / '<b>"a b".. static'
    shutil.copytree(board_run, odd)
    static = tmp_path / "static"
    shutil.copytree(board_run, static)
    assert list(named_runs([odd, static, odd])) == ["b-a-b-static", "static-2", "b-a-b-static-2"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run directory: it has no run\.yaml"):
        named_runs([tmp_path])
