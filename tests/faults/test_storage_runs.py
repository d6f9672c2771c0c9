"""Real runs on a disk that refuses, fills up, or goes away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from arena.failpoints import ONCE
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.faults.runs import (
    ASSETS,
    check_left,
    document,
    events,
    finished,
    launch,
    learners_of,
)
from tests.integration.conftest import ARENA
from tests.support import run_process, wait_until

START_S = 60.0
END_S = 90.0
SHORT = {
    "stop": {"agent_steps_per_policy": 3000},
    "ghosts": {"every_agent_steps": 600},
    "metrics": {"sinks": ["jsonl", "tensorboard"]},
}


@contextmanager
def launched(
    run: Path, config: Mapping[str, object], *, failpoints: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A run of the command; whatever a test finds out, it is gone afterwards."""
    process = launch(run, config, failpoints=failpoints)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def check_finished(run: Path) -> None:
    """All policies are active and have trained to the end, every ghost is there."""
    check_left(run)
    with JournalReader(run / JOURNAL) as reader:
        tables = reader.load()
    assert tables.run.state == "finished"
    assert all(row.agent_steps >= 3000 for row in tables.policies.values())
    assert {row.state for row in tables.policies.values()} == {"active"}
    assert all(ghost.linked and not ghost.corrupt for ghost in tables.ghosts.values())
    assert tables.ghosts


def test_learners_and_controller_get_over_whatever_a_disk_refuses(tmp_path: Path) -> None:
    """The learner's third publication, and later a sync and a rename; the third ghost too."""
    run = tmp_path / "run"
    rules = "publish.begin=raise:ENOSPC@3;publish.synced=raise:EIO@8;publish.filled=raise:EROFS@5"
    with launched(run, document(**SHORT), failpoints=rules) as process:
        out, err = process.communicate(timeout=END_S)
    refusals = " ".join(str(row.data["reason"]) for row in events(run, "storage_full"))
    for message in ("No space left", "Input/output error", "Read-only file system"):
        assert message in refusals, (out, err)
    assert events(run, "storage_recovered")
    assert "Durable data cannot be written" in err
    assert not events(run, "quarantined", "learner_lost", "ghost_corrupt")
    check_finished(run)


def test_a_learner_killed_while_it_publishes_loses_that_assignment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv(ONCE, str(tmp_path / "once"))
    with launched(run, document(**SHORT), failpoints="publish.synced=kill@8") as process:
        out, err = process.communicate(timeout=END_S)
    assert process.returncode == 0, (out, err)
    (lost,) = events(run, "learner_lost")
    assert "signal 9" in str(lost.data["reason"])
    check_finished(run)


@contextmanager
def small_disk(directory: Path, options: str) -> Iterator[Path]:
    """A file system of its own; skips the test where it cannot be mounted."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    done = run_process(command)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file, ExitStack() as stack:
        stack.enter_context(pytest.raises(OSError, match="No space left"))
        while True:
            file.write(b"x" * 4096)


class Listener:
    """What a process has said on standard error so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self._descriptor = process.stderr.fileno()
        os.set_blocking(self._descriptor, False)
        self.text = ""

    def has_heard(self, text: str) -> bool:
        """Whether it has said something."""
        with suppress(BlockingIOError):
            self.text += os.read(self._descriptor, 1 << 16).decode()
        return text in self.text


def test_a_disk_that_fills_up_is_waited_for(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "size=16m") as disk,
        launched(disk / "run", document(**SHORT)) as process,
    ):
        run = disk / "run"
        listener = Listener(process)
        wait_until(lambda: finished(run) >= 4, timeout_s=START_S)
        fill(disk / "ballast")
        wait_until(lambda: listener.has_heard("storage"), timeout_s=START_S)
        assert process.poll() is None
        (disk / "ballast").unlink()
        os.set_blocking(listener._descriptor, True)
        out, err = process.communicate(timeout=END_S)
        assert process.returncode == 0, (out, listener.text, err)
        check_finished(run)


def test_a_launch_onto_a_read_only_disk_starts_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m,ro") as disk:
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(document(**SHORT)))
        command = [*ARENA, "launch", str(config), "--run-dir", str(disk / "run")]
        done = run_process(command, cwd=ASSETS, timeout_s=START_S)
        assert done.returncode == 5, done.stderr
        (line,) = done.stderr.splitlines()
        assert line == f"arena: {disk / 'run'}: Read-only file system"


def test_a_run_whose_directory_is_moved_away_ends_with_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with launched(run, document()) as process:
        wait_until(lambda: finished(run) >= 3, timeout_s=START_S)
        shutil.move(run, tmp_path / "elsewhere")
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 5, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(f"arena: {run}")
    wait_until(lambda: not learners_of(run), timeout_s=2.0)
    assert not run.exists()
    check_left(tmp_path / "elsewhere")
