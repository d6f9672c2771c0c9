"""Runs of the console script, as a user starts it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.faults.killing import processes_of
from tests.support import exit_code, run_process, wait_until

# The folder tools/ has this name once it is installed.
ARENA = (sys.executable, "-m", "populations.commands.main")
SMALL = (
    "environment.num_envs=64",
    "environment.random_openings.share=0",
    "populations.player.size=3",
    "populations.player.network.hidden_sizes=[16]",
    "populations.player.hyperparameters.rollout_length=8",
    "populations.player.hyperparameters.num_epochs=1",
    "populations.player.hyperparameters.num_minibatches=1",
    "pbt.ready_agent_steps=2000",
    "pbt.warm_up_agent_steps=2000",
    "pbt.min_matches=20",
    "pbt.min_rating_gap=1",
    "ghosts.every_agent_steps=2000",
    "assignment.agent_steps=1000",
    "evaluation.share=0.2",
    "metrics.sinks=[jsonl]",
    "seed=3",
)
STEPS = "stop.agent_steps_per_policy=6000"


LOOKING = ("league", "verify")
"""Commands that start no process: done in this one, where everything is imported already."""

REFUSED = 2
"""Exit code of bad input, which is found before any process is started."""

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


def launch_arguments(run: Path, *more: str) -> list[str | Path]:
    """A run of tic-tac-toe that takes some seconds."""
    return ["launch", "tictactoe", *SMALL, "stop.duration_s=null", *more, "--run-dir", run]


@pytest.fixture
def arena() -> Command:
    """Run `arena` with arguments; by default it must succeed."""

    def run(*arguments: str | Path, code: int = 0, timeout_s: float = 110.0) -> Done:
        texts = [str(argument) for argument in arguments]
        if texts[0] in LOOKING or code == REFUSED:
            done = run_here(texts)
        else:
            done = run_process([*ARENA, *texts], timeout_s=timeout_s)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    return run


def launch_config(config: Mapping[str, object], directory: Path) -> Path:
    """Run a configuration to its end where its code is, and return the run's directory."""
    # The file is JSON, because YAML writes repeated values as anchors.
    (directory / "config.yaml").write_text(json.dumps(config), encoding="utf8")
    run = directory / "run"
    command = [*ARENA, "launch", "config.yaml", "--run-dir", str(run)]
    done = run_process(command, cwd=directory, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return run


def run_here(arguments: Sequence[str]) -> Done:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = exit_code(*arguments)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that two learners carried out to its end; to be looked at."""
    run = tmp_path_factory.mktemp("finished") / "run"
    command = [
        *ARENA,
        *map(str, launch_arguments(run, STEPS, "device=[cpu, cpu]", "--learners", "2")),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=110.0)
    wait_until(lambda: not processes_of(run), timeout_s=5.0)
    return run


@pytest.fixture
def arena_json(arena: Command) -> Callable[..., dict[str, Any]]:
    """Run `arena ... --json` and read its one document."""

    def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
        document = json.loads(arena(*arguments, "--json", code=code).stdout)
        assert document["schema"] == 1
        return dict(document)

    return run


def start(arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
    """Start `arena` and leave it running."""
    return subprocess.Popen(
        [*ARENA, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sigkill(process: subprocess.Popen[str]) -> None:
    """Kill a process at once and let go of its pipes."""
    process.kill()
    process.communicate()
