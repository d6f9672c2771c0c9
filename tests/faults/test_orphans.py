"""What environments start ends with the run or command, whichever of its processes is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from experiments.faults.killing import controller_of
from experiments.faults.simulators import VARIABLE, simulators
from tests.faults.runs import check_left, document, finished, learners_of
from tests.integration.conftest import ARENA
from tests.support import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
GAME = "experiments.faults.simulators:connect_four"
NUM_ENVS, SORTS = 2, 3
START_S, GONE_S = 180.0, 10.0


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the simulators of these tests are known by."""
    token = str(tmp_path_factory.mktemp("orphans"))
    yield token
    for process in simulators(token):
        process.kill()


def start(*arguments: str | Path, token: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ARENA, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, VARIABLE: token},
    )


def launch(run: Path, *, num_env_workers: int, token: str) -> subprocess.Popen[bytes]:
    if (run / "run.yaml").exists():
        return start("launch", "--resume", "--run-dir", run, token=token)
    config = document(num_env_workers=num_env_workers)
    # Assignments are short, so that environments are made soon.
    config["environment"] = {
        "id": GAME,
        "num_envs": NUM_ENVS,
        "num_env_workers": num_env_workers,
    }
    config["assignment"] = {"agent_steps": 64}
    path = run.parent / f"{run.name}.yaml"
    path.write_text(json.dumps(config))
    return start("launch", path, "--run-dir", run, token=token)


def await_simulators(process: subprocess.Popen[bytes], token: str) -> list[psutil.Process]:
    """Wait until an environment's are there, and return them."""
    found: list[psutil.Process] = []

    def are_there() -> bool:
        assert process.poll() is None, "it ended by itself"
        found[:] = simulators(token)
        return len(found) >= NUM_ENVS * SORTS

    wait_until(are_there, timeout_s=START_S)
    return found


def await_learner(run: Path) -> psutil.Process:
    wait_until(lambda: learners_of(run), timeout_s=START_S)
    return learners_of(run)[0]


def check_gone(processes: list[psutil.Process]) -> None:
    _, left = psutil.wait_procs(processes, timeout=GONE_S)
    assert not left


def check_nobody(token: str) -> None:
    wait_until(lambda: not simulators(token), timeout_s=GONE_S)


@pytest.mark.parametrize("num_env_workers", [0, 2])
def test_nothing_of_a_run_stays_whichever_process_is_killed(
    num_env_workers: int, token: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = launch(run, num_env_workers=num_env_workers, token=token)
    # The learner and its two guards are killed.
    for generation in range(3):
        await_learner(run)
        simulating = await_simulators(process, token)
        learner = await_learner(run)
        victim = [learner, *learner.parents()][generation]
        victim.kill()
        check_gone([victim, learner, *simulating])
    if num_env_workers:
        simulating = await_simulators(process, token)
        worker = next(
            one
            for one in await_learner(run).children(recursive=True)
            if "arena.envs.workers.process" in one.cmdline()
        )
        # The guard adopts orphans of its process.
        own = [one for guard in worker.parents()[:1] for one in guard.children(recursive=True)]
        assert any(one in simulating for one in own)
        worker.kill()
        check_gone(own)
    await_simulators(process, token)
    process.kill()
    process.wait()
    check_nobody(token)
    check_left(run)
    process = launch(run, num_env_workers=num_env_workers, token=token)
    await_simulators(process, token)
    controller_of(process.pid).kill()
    assert process.wait(GONE_S) == -signal.SIGKILL
    check_nobody(token)
    check_left(run)
    process = launch(run, num_env_workers=num_env_workers, token=token)
    await_simulators(process, token)
    process.send_signal(signal.SIGINT)
    assert process.wait(START_S) == 130
    assert not simulators(token)
    check_left(run)


@pytest.fixture(scope="module")
def stopped_run(token: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("stopped") / "run"
    process = launch(run, num_env_workers=0, token=token)
    await_simulators(process, token)
    wait_until(lambda: finished(run) > 2, timeout_s=START_S)
    process.send_signal(signal.SIGINT)
    assert process.wait(START_S) == 130
    return run


@pytest.mark.parametrize("which", ["the command", "what it runs"])
@pytest.mark.parametrize("command", ["evaluate", "export", "envs check"])
def test_nothing_of_a_command_stays(
    command: str, which: str, stopped_run: Path, token: str, tmp_path: Path
) -> None:
    policy = f"{stopped_run}:player/p000"
    arguments: dict[str, tuple[str | Path, ...]] = {
        "evaluate": ("evaluate", policy, "bot:random", "--matches", "1000000"),
        "export": ("export", stopped_run, "--player", "player/p000", "--to", tmp_path / "x"),
        "envs check": ("envs", "check", GAME),
    }
    process = start(*arguments[command], token=token)
    wait_until(lambda: simulators(token) or process.poll() is not None, timeout_s=START_S)
    assert process.poll() is None, "it ended by itself"
    victim = psutil.Process(process.pid)
    if which == "what it runs":
        victim = controller_of(process.pid)
    victim.kill()
    assert process.wait(GONE_S) == -signal.SIGKILL
    check_nobody(token)
