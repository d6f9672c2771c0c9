"""Real runs on a disk that refuses, fills up, or goes away."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from arena.checkpoints.publish import publish
from arena.envs.inspect import Inspected
from arena.errors import DiskRefused
from arena.failpoints import ONCE, armed
from arena.learners.spawn import spawn_learner
from arena.metrics.tensorboard import TensorboardSink
from arena.types import LearnerId
from arena.wire.messages import Message
from populations.config.run_file import RUN_FILE
from populations.controller.server.run_directory import OpenRun, create_run, make_run_directory
from populations.controller.server.server import Server
from populations.errors import StorageError
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.lock import RunLock
from tests.arena.checkpoints.conftest import MakePublishable
from tests.arena.checkpoints.conftest import make_publishable as make_publishable
from tests.faults.runs import (
    ASSETS,
    check_left,
    document,
    events,
    finished,
    launch,
    learners_of,
)
from tests.faults.scenarios import created
from tests.integration.conftest import ARENA
from tests.populations.controller.server.test_server import NoLauncher, ScriptedTransport
from tests.populations.controller.simulated import duel_spec
from tests.populations.small_run import duel_run_file
from tests.support import exit_code, run_process, wait_until

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


# The modules are imported by name, because only an installation knows where the tools are.
serving = importlib.import_module("populations.commands.launch.serving")
main = importlib.import_module("populations.commands.main").main

CONFIG = "environment: {id: 'tests.duel:env', num_envs: 8}\npopulations: {player: {size: 2}}\n"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of a launch that gets as far as starting learners, which fails the test."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("nothing may be started")

    found = Inspected(spec=duel_spec())
    monkeypatch.setattr("arena.envs.inspect.inspect_and_play", lambda *_, **__: found)
    monkeypatch.setattr(serving, "control", start)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return ["launch", str(tmp_path / "config.yaml"), "--run-dir", str(tmp_path / "run")]


@pytest.mark.parametrize(
    "point",
    [
        "create.begin", "create.directory", "create.folder", "journal.create", "journal.written",
        "rename.renamed", "create.journal", "create.done", "open.setup", "open.sinks",
    ],
)  # fmt: skip
def test_a_launch_into_what_is_read_only_starts_nothing(
    arguments: list[str], point: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with armed(f"{point}=raise:EROFS"):
        assert exit_code(*arguments) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("arena: ")
    assert "Read-only file system" in line
    if (tmp_path / "run" / RUN_FILE).exists():
        assert created_by_launch(tmp_path / "run")


def created_by_launch(run_dir: Path) -> bool:
    """Whether there is a whole run, ready to go on."""
    with RunLock(run_dir), OpenRun(run_dir) as run:
        return len(run.state.tables.policies) == 2


@pytest.mark.parametrize("point", ["journal.begun", "open.setup", "open.sinks"])
def test_a_resume_of_what_is_read_only_starts_nothing(
    arguments: list[str], point: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    make_run_directory(run_dir)
    create_run(run_dir, duel_run_file(), initial_weights={}, utc="now")
    more = ["learners=1"] if point == "journal.begun" else []
    with armed(f"{point}=raise:EROFS"):
        assert exit_code("launch", *more, "--resume", "--run-dir", str(run_dir)) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "Read-only file system" in line


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A new run, which is not there any more at the end."""
    run_dir = tmp_path / "run"
    make_run_directory(run_dir)
    weights = {"player": {"weights.safetensors": b"w"}}
    create_run(run_dir, duel_run_file(), initial_weights=weights, utc="now")
    yield run_dir
    assert not run_dir.exists(), "nobody has made it anew"


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_run_whose_directory_goes_away_ends_and_makes_nothing_anew(
    run_dir: Path, tmp_path: Path, how: str
) -> None:
    clock = [0.0]

    def go_away(status: Mapping[str, object]) -> None:
        del status
        os.rename(run_dir, tmp_path / "elsewhere")
        if how == "deleted":
            shutil.rmtree(tmp_path / "elsewhere")
        if how == "replaced":
            run_dir.mkdir()

    class Clocked(ScriptedTransport):
        def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
            clock[0] += timeout_s
            return []

    with RunLock(run_dir), OpenRun(run_dir) as run:
        server = Server(
            run_dir=run_dir,
            state=run.state,
            journal=run.journal,
            transport=Clocked([], None),  # type: ignore[arg-type]
            launcher=NoLauncher(),
            sinks=run.sinks,
            on_status=go_away,
            clock=lambda: clock[0],
        )
        with pytest.raises(StorageError, match=r"journal\.db: No such file"):
            server.run()
        with pytest.raises(FileNotFoundError, match="gone"):
            TensorboardSink(run_dir / "gone" / "tensorboard").write("player/p000", 1, {"a/b": 1.0})
    if how == "replaced":
        assert list(run_dir.iterdir()) == [], "what has its name now is not ours"
        run_dir.rmdir()
    if how == "moved":
        assert created(tmp_path / "elsewhere") == "whole"


def test_a_learner_is_not_started_where_the_run_is_gone(tmp_path: Path) -> None:
    log_path = tmp_path / "gone" / "logs" / "learner-0.log"
    with pytest.raises(FileNotFoundError):
        spawn_learner(tmp_path / "setup", "ipc:///nowhere", populations=(), log_path=log_path)
    assert list(tmp_path.iterdir()) == []


def test_a_learner_does_not_bring_the_run_back_either(
    tmp_path: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    root = tmp_path / "run"
    root.mkdir()

    for point in ("publish.begin", "publish.level", "publish.temporary", "publish.filled"):
        root.mkdir(exist_ok=True)
        with armed(f"{point}=trace") as plan, pytest.MonkeyPatch.context() as patch:

            def go_away(name: str, point: str = point) -> None:
                if name == point and root.exists():
                    shutil.rmtree(root)

            patch.setattr(plan, "hit", go_away)
            with pytest.raises(DiskRefused, match=r"No such file|gone"):
                publish(root, manifest=manifest, files=files)
        assert not root.exists()
