"""Runs that Python has launched: begun, looked at, stopped, killed, resumed, and left alone."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import arena
from experiments.faults.killing import processes_of
from populations.errors import RunInUse
from populations.preset_files import config_text
from populations.yaml_documents import read_document
from tests.integration.conftest import SMALL
from tests.support import wait_until
from tools.api.launch import LaunchedRun

ENDLESS = (*SMALL, "stop.duration_s=null", "stop.agent_steps_per_policy=100000000")


def gone(run: Path) -> bool:
    return not processes_of(run)


@pytest.mark.slow
@pytest.mark.integration
def test_a_run_is_looked_at_stopped_and_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="arena.launch")
    directory = tmp_path / "run"
    with arena.launch("tictactoe", run_dir=directory, overrides=ENDLESS, wait=False) as run:
        assert run.is_running
        status = run.status()
        assert (status["state"], status["pid"]) == ("running", run.pid)
        with pytest.raises(TimeoutError, match=r"goes on after 0\.01 s"):
            run.wait(timeout_s=0.01)
        with pytest.raises(RunInUse, match=f"in use by process {run.pid}"):
            arena.launch(run_dir=directory, resume=True)
        assert run.is_running
        wait_until(lambda: run.status()["agent_steps"] > 0, timeout_s=60.0)
    assert not run.is_running
    assert gone(directory)
    status = run.status()
    assert (status["state"], status["reason"]) == ("stopped", "interrupted by SIGTERM")
    run.stop()
    run.wait()
    assert f"run directory: {directory}" in run.output
    # The log also has the lines of the launch that was refused.
    assert set(run.output) < {record.message for record in caplog.records}
    steps = status["agent_steps"]
    later = {"stop.agent_steps_per_policy": steps + 500}
    resumed = arena.launch(run_dir=directory, resume=True, overrides=later)
    status = resumed.status()
    assert status["state"] == "finished"
    assert status["agent_steps"] > steps
    assert [line["policy"] for line in resumed.hyperparameters()] == [
        *("player/p000", "player/p001", "player/p002")
    ]
    assert resumed.events(kind="controller_started") == [
        event for event in run.events() if event["kind"] == "controller_started"
    ]
    assert len(resumed.events(kind="controller_started")) == 2


@pytest.mark.slow
@pytest.mark.integration
def test_a_run_whose_process_was_killed_says_so(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    config = read_document(config_text("tictactoe"), name="tictactoe")
    assert isinstance(config, dict)
    run = arena.launch(config, run_dir=directory, overrides=ENDLESS, wait=False)
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(arena.RunFailed, match=r"ended by signal 9; .* resume=True goes on"):
        run.wait()
    wait_until(lambda: gone(directory), timeout_s=10.0)
    assert run.status()["state"] == "crashed"
    # The run resumes with a limit that it has reached already.
    run = arena.launch(run_dir=directory, resume=True, overrides=["stop.agent_steps_per_policy=1"])
    assert run.status()["state"] == "finished"


PARENT = """
import sys
import arena

run = arena.launch("tictactoe", run_dir=sys.argv[1], overrides=sys.argv[3:], wait=False)
print(run.pid, flush=True)
if sys.argv[2] == "wait":
    run.wait()
elif sys.argv[2] == "read":
    sys.stdin.read()
"""
BLOCKING = """
import sys
import arena

try:
    arena.launch("tictactoe", run_dir=sys.argv[1], overrides=sys.argv[2:])
except KeyboardInterrupt:
    print(arena.open(sys.argv[1]).status()["reason"])
"""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_a_run_does_not_outlive_the_process_that_launched_it(how: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    what = "end" if how == "ends" else "read"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, directory, what, *ENDLESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip().isdigit()
        if how == "killed":
            parent.kill()
    assert parent.returncode == (0 if how == "ends" else -9)
    # The output of a killed process has no reader, which the run notices with its next line.
    wait_until(lambda: gone(directory), timeout_s=60.0)
    assert arena.open(directory).status()["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.integration
def test_ctrl_c_while_it_waits_stops_the_run_with_everything_saved(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKING, directory, *ENDLESS], stdout=subprocess.PIPE, text=True
    ) as parent:
        wait_until(lambda: (directory / "status.json").exists(), timeout_s=60.0)
        parent.send_signal(signal.SIGINT)
        said, _ = parent.communicate(timeout=60.0)
    assert said.strip() == "interrupted by SIGTERM"
    assert gone(directory)


@pytest.mark.slow
@pytest.mark.integration
def test_faults_of_the_configuration_are_raised(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"populations.player.sise": 3, "seed": "x"}
    with pytest.raises(arena.ConfigError, match="did you mean 'populations") as raised:
        arena.launch("tictactoe", run_dir=tmp_path / "run", overrides=wrong, wait=False)
    assert raised.value.faults[1] == "seed: must be a whole number, got 'x'"  # type: ignore[attr-defined]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(arena.ConfigError, match="neither empty nor a run directory"):
        arena.launch("tictactoe", run_dir=tmp_path / "other")


@pytest.mark.integration
def test_errors_speak_of_arguments_and_not_of_options(board_run: Path) -> None:
    there = "holds a run already: resume=True goes on with it, force=True throws it away"
    with pytest.raises(arena.ConfigError, match=there):
        arena.launch("tictactoe", run_dir=board_run)
    begins = "no force=True, init_from, with_hyperparameters=True or replay"
    with pytest.raises(arena.ConfigError, match=begins):
        arena.launch(run_dir=board_run, resume=True, replay="runs/a:p003")


@pytest.mark.integration
def test_runs_that_were_waited_for_leave_no_descriptors_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    run = LaunchedRun(tmp_path, ["--no-such-option"])
    with pytest.raises(arena.ConfigError, match="No such option"):
        run.wait()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "launch needs a config, or with resume a run_dir, got config=None, resume=False"),
        ({"resume": True}, "got config=None, resume=True"),
        ({"config": "tictactoe", "overrides": "seed=1"}, "must be a mapping or a list"),
        ({"config": {"seed": {1}}}, r"config must be plain data, got \{'seed': \{1\}\}"),
        (
            {"config": "tictactoe", "overrides": {"seed": {1}}},
            r"seed must be plain data, got \{1\}",
        ),
    ],
)
def test_arguments_that_cannot_work_start_no_process(
    arguments: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(arena.ConfigError, match=complaint):
        arena.launch(**arguments)
