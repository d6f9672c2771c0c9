"""A run directory that cannot be written to, or is gone: exit 5, one line, nothing made anew."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from arena.checkpoints.publish import publish
from arena.envs.inspect import Inspected
from arena.errors import DiskRefused
from arena.failpoints import armed
from arena.learners.spawn import spawn_learner
from arena.metrics.tensorboard import TensorboardSink
from arena.types import LearnerId
from arena.wire.messages import Message
from populations.config.run_file import RUN_FILE
from populations.controller.server.run_directory import OpenRun, create_run, make_run_directory
from populations.controller.server.server import Server
from populations.errors import StorageError
from populations.storage.lock import RunLock
from tests.arena.checkpoints.conftest import MakePublishable
from tests.arena.checkpoints.conftest import make_publishable as make_publishable
from tests.faults.scenarios import created
from tests.populations.controller.server.test_server import NoLauncher, ScriptedTransport
from tests.populations.controller.simulated import duel_spec
from tests.populations.small_run import duel_run_file
from tests.support import exit_code

# By name: where the tools are installed, only an installation knows.
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
