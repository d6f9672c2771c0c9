"""Checkpoints that turn out to be corrupt in a run that goes on: older ones are used, loudly."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from arena.checkpoints.files import DIRECTORY_NAME, list_directories
from arena.checkpoints.manifest import WEIGHTS
from experiments.faults.killing import processes_of
from tests.faults.golden import NEWEST, copy_of, events_of, tables_of
from tests.integration.conftest import Command, arena, sigkill, start  # noqa: F401
from tests.support import wait_until


@pytest.mark.timeout(180)
def test_a_learner_finds_it_and_its_policy_goes_on_from_the_parent(
    tmp_path: Path,
    arena: Command,  # noqa: F811
) -> None:
    run = copy_of(NEWEST, tmp_path)
    before = tables_of(run)
    endless = "stop.agent_steps_per_policy=1000000000"
    process = start(["launch", "--resume", "--run-dir", run, endless, "--learners", "1"])
    try:
        wait_until(partial(_has_finished_since, run, before.run.assignments_finished), timeout_s=60)
        # It must read its checkpoints from the disk again, so it is stopped, and killed after.
        (learner,) = processes_of(run)
        learner.suspend()
        wait_until(partial(_is_all_recorded, run), timeout_s=5.0)
        damaged = _current(run)
        for key in set(damaged.values()):
            _damage(run / key / WEIGHTS)
        learner.kill()
        wait_until(lambda: len(events_of(run, "fell_back")) >= len(damaged), timeout_s=60)
        then = tables_of(run).run.assignments_finished
        wait_until(partial(_has_finished_since, run, then), timeout_s=60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, (out, err)
    finally:
        if process.poll() is None:
            sigkill(process)
    tables = tables_of(run)
    for event in events_of(run, "checkpoint_corrupt"):
        assert event.data["key"] in damaged.values()
        assert tables.checkpoints[str(event.data["key"])].state == "corrupt"
        assert "sha256" in str(event.data["reason"])
    failures = [event.data["failure"] for event in events_of(run, "assignment_failed")]
    assert "checkpoint" in failures
    for policy, row in tables.policies.items():
        assert row.state == "active"
        assert row.agent_steps >= before.policies[policy].agent_steps
    arena("verify", run)


def _has_finished_since(run: Path, before: int) -> bool:
    return tables_of(run).run.assignments_finished > before + 1


def _current(run: Path) -> dict[str, str]:
    """By policy: what it goes on from."""
    return {str(p): str(row.checkpoint) for p, row in tables_of(run).policies.items()}


def _is_all_recorded(run: Path) -> bool:
    """Whether nothing is under way between a learner's publication and the journal."""
    known = tables_of(run).checkpoints
    keys = list_directories(run, "checkpoints")
    return all(key in known for key in keys if DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]))


def _damage(path: Path) -> None:
    """Other bytes in a file of its own: ghosts are links to the old one."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
