"""Kill, resume, verify, for as many seeded rounds as ``make soak`` asks for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.conftest import Command, start
from tests.support import wait_until

NUM_ROUNDS = int(os.environ.get("ARENA_SOAK_ROUNDS", "0"))

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(NUM_ROUNDS == 0, reason="ARENA_SOAK_ROUNDS says how many rounds"),
]

LAUNCH = (
    "launch",
    "tictactoe",
    "environment.num_envs=16",
    "populations.player.size=3",
    "populations.player.network.hidden_sizes=[16]",
    "populations.player.hyperparameters.rollout_length=8",
    "pbt.ready_agent_steps=2000",
    "pbt.warm_up_agent_steps=2000",
    "pbt.min_matches=20",
    "ghosts.every_agent_steps=2000",
    "assignment.agent_steps=1000",
    "stop={agent_steps_per_policy: 1000000000}",
    "learners=2",
)
COUNTERS = ("agent_steps", "matches", "assignments_finished", "checkpoints", "ghosts", "exploits")


def children(controller: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(controller.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_no_kill_loses_what_was_committed(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    rng = random.Random(1)
    run = tmp_path / "run"
    controller = start([*LAUNCH, "--run-dir", run])
    before = dict.fromkeys(COUNTERS, 0)

    def counters() -> dict[str, int]:
        if not (run / "journal.db").exists() or not (run / "run.yaml").exists():
            return dict.fromkeys(COUNTERS, 0)
        status = arena_json("league", run, "status")
        return {name: status[name] for name in COUNTERS}

    try:
        for round_number in range(NUM_ROUNDS):
            goal = before["assignments_finished"] + rng.randint(1, 6)
            wait_until(lambda goal=goal: counters()["assignments_finished"] >= goal, timeout_s=90.0)
            victim = rng.choice(["learner", "controller", "everyone"])
            learners = children(controller)
            if victim == "learner" and learners:
                rng.choice(learners).kill()
            elif victim == "everyone":
                os.killpg(controller.pid, signal.SIGKILL)
            else:
                controller.kill()
            if victim != "learner":
                controller.communicate(timeout=30)
                wait_until(lambda gone=learners: not any(map(is_alive, gone)), timeout_s=10.0)
                arena("verify", run)
            after = counters()
            for name in ("agent_steps", "matches", "assignments_finished"):
                assert after[name] >= before[name], (round_number, victim, name)
            before = after
            if victim != "learner":
                controller = start(["launch", "--resume", "--run-dir", run])
        controller.send_signal(signal.SIGINT)
        _, errors = controller.communicate(timeout=60)
        assert controller.returncode == 130, errors
        arena("verify", run)
    finally:
        for process in [*children(controller)]:
            process.kill()
        controller.kill()
        controller.communicate()
