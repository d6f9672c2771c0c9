"""SIGKILL at random moments, again and again: of a learner, of the controller, of both.

``ARENA_SOAK_ROUNDS`` sets the number of rounds, ``ARENA_SOAK_SEED`` the moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from populations.league.views import Inspection, status_view
from tests.integration.conftest import Command, sigkill, start
from tests.integration.test_launch import launch_arguments, processes_of
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

ROUNDS = int(os.environ.get("ARENA_SOAK_ROUNDS", "4"))
SEED = int(os.environ.get("ARENA_SOAK_SEED", "1"))
COUNTERS = ("agent_steps", "matches", "assignments_finished", "elapsed_s")


@pytest.mark.slow
@pytest.mark.timeout(max(180, 30 * ROUNDS))
def test_killing_at_random_moments_loses_nothing_and_leaves_nobody(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    run = tmp_path / "run"
    goal = ("stop.agent_steps_per_policy=100000000", "--learners", "2")
    process = start(launch_arguments(run, *goal))
    before = dict.fromkeys(COUNTERS, 0.0)
    for round_number in range(ROUNDS):
        wait_until(partial(_has_moved, run, before), timeout_s=60.0)
        _pause_until_a_random_moment(rng)
        victim = ("learner", "controller", "both")[round_number % 3]
        learners = processes_of(run)
        if victim in ("learner", "both") and learners:
            rng.choice(learners).kill()
        if victim in ("controller", "both"):
            sigkill(process)
            wait_until(lambda: not processes_of(run), timeout_s=2.0)
            assert arena_json("league", run, "status")["state"] == "crashed"
            arena("verify", run)
            process = start(["launch", "--resume", "--run-dir", run])
        after = _counters(run)
        assert all(after[name] >= before[name] for name in COUNTERS)
        before = after
    wait_until(partial(_has_moved, run, before), timeout_s=60.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    arena("verify", run)
    wait_until(lambda: not processes_of(run), timeout_s=2.0)
    _check_tallies(arena_json, run)


def _has_moved(run: Path, before: dict[str, float]) -> bool:
    return _counters(run)["assignments_finished"] > before["assignments_finished"]


def _counters(run: Path) -> dict[str, float]:
    if not (run / "run.yaml").exists():
        return dict.fromkeys(COUNTERS, 0.0)
    inspection = Inspection.open(run)
    try:
        status = status_view(inspection, None)
        return {name: float(str(status[name])) for name in COUNTERS}
    finally:
        inspection.close()


def _pause_until_a_random_moment(rng: random.Random) -> None:
    """Between two commits: a moment that no condition can be waited for."""
    time.sleep(rng.uniform(0.0, 0.5))


def _check_tallies(arena_json: Callable[..., dict[str, Any]], run: Path) -> None:
    """Every finished assignment's matches are there once."""
    tallies = arena_json("league", run, "matches")["tallies"]
    status = arena_json("league", run, "status")
    assert sum(row["matches"] for row in tallies) == status["matches"]
    assert [row["sequence"] for row in tallies] == list(range(1, len(tallies) + 1))
