"""SIGKILL of the controller at every boundary of its loop, again and again (F2, F3)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from arena.wire.address import default_endpoint, remove_socket
from experiments.faults.killing import TINY, VICTIMS, killed_run, processes_of
from populations.config.run_file import RUN_FILE, RunFile
from populations.controller.server.run_directory import create_run
from tests.faults.outcomes import Outcome, differences, outcome

pytestmark = [pytest.mark.xdist_group("killed controllers"), pytest.mark.timeout(400)]

END_S = 300.0
KILLED = -9
NUM_KILLS = 4
AFTER_S = 0.03
"""Most seconds between a commit and a kill."""

MARGIN = 4
"""Assignments before the end at which nothing is killed any more."""

CHAINS = (
    (
        "before_start@1",
        "started@1",
        "assigned@3",
        "before_acknowledge@4",
        "committed@14",
        "ended@1",
    ),
    (
        "told@20",
        "before_link@2",
        "verified@4",
        "acknowledged@4",
        "before_remove@2",
        "before_backup@1",
    ),
    (
        "before_commit@12",
        "linked@2",
        "before_verify@4",
        "removed@2",
        "carried_out@30",
        "before_sweep@1",
    ),
)
"""Points of the server and the hit that kills there, one controller each, in order."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFile, Outcome]:
    """A deterministic run that nobody disturbed: what it was told, and what it came to."""
    with killed_run(tmp_path_factory.mktemp("reference"), name="alone") as run:
        run.start("rock_paper_scissors", *TINY)
        assert run.wait(timeout_s=END_S) == 0, run.log.read_text()
        come_to = outcome(run.run)
        kinds = {getattr(row, "kind", "") for row in come_to["decisions"]}
        assert {"exploited", "ghost_created"} <= kinds
        return RunFile.load(run.run / RUN_FILE), come_to


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain[0])
def test_a_controller_that_is_killed_at_every_boundary_decides_what_it_would_have(
    reference: tuple[RunFile, Outcome], tmp_path: Path, chain: tuple[str, ...]
) -> None:
    run_file, expected = reference
    with killed_run(tmp_path) as run:
        run.run.mkdir()
        create_run(run.run, run_file, initial_weights={}, utc=run_file.created)
        for point in chain:
            name, _, hit = point.partition("@")
            rules = {
                "ARENA_TESTING": "1",
                "ARENA_FAILPOINTS": f"controller.{name}=kill@{hit}",
            }
            run.resume(environment=rules)
            code = run.wait(timeout_s=END_S)
            assert code == KILLED, f"{point} was not hit: {run.log.read_text()}"
            run.await_nobody()  # fails if learners outlive the controller by two seconds
            run.verify()
            assert not run.faults, f"after {point}: {run.faults}"
        run.resume()
        assert run.wait(timeout_s=END_S) == 0, run.log.read_text()
        run.verify()
        assert not run.faults
        assert differences(expected, outcome(run.run)) == []
        assert not processes_of(run.run)
        # A controller killed after the end leaves its socket, which no resume replaces.
        remove_socket(default_endpoint(run_file.run))


def test_kills_of_learners_and_controllers_change_nothing_that_was_decided(
    reference: tuple[RunFile, Outcome], tmp_path: Path
) -> None:
    _, expected = reference
    rng = random.Random(5)
    with killed_run(tmp_path) as run:
        run.start("rock_paper_scissors", *TINY)
        below = len(expected["assignments"]) - MARGIN
        for mark in sorted(rng.sample(range(1, below), NUM_KILLS)):
            victim = rng.choice(VICTIMS)
            assert run.await_finished(mark), run.log.read_text()
            time.sleep(rng.uniform(0.0, AFTER_S))  # a moment that no condition can be waited for
            run.kill(victim, rng)
        assert run.wait(timeout_s=END_S) == 0, run.log.read_text()
        run.await_nobody()
        run.verify()
        assert not run.faults
        assert differences(expected, outcome(run.run)) == []
        assert sum(run.num_kills.values()) == NUM_KILLS
        assert len(run.num_kills) > 1
