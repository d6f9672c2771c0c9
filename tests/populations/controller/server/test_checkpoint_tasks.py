"""What a learner calls corrupt is read by the controller before that is believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS
from arena.types import CheckpointRef, Digest, LearnerId, PolicyId
from arena.wire.messages import Failed, Train
from populations.controller.server.checkpoint_tasks import read_back
from populations.controller.state.events import AssignmentFailed
from tests.populations.small_run import SmallRun

LEARNER = LearnerId("learner")
P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    with run.journal:
        yield run


def assigned(run: SmallRun) -> tuple[Train, CheckpointRef]:
    """An assignment, and the checkpoint that its trainee goes on from."""
    message = run.opened(P0).message
    assert isinstance(message, Train)
    ref = message.trainees[0].checkpoint
    assert ref is not None
    return message, ref


def told(run: SmallRun, message: Train, key: str) -> AssignmentFailed:
    """What follows from a learner that calls a directory corrupt."""
    failed = Failed(
        assignment_id=message.assignment_id, attempt=1, kind="checkpoint", reason="x", key=key
    )
    event = read_back(run.run_dir, LEARNER, failed, message)
    assert isinstance(event, AssignmentFailed)
    return event


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER])
def test_a_damaged_checkpoint_is_found_damaged(run: SmallRun, name: str) -> None:
    message, ref = assigned(run)
    path = run.run_dir / ref.key / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    event = told(run, message, ref.key)
    assert name in str(event.damage)
    assert event.failed.reason == "x"


def test_a_missing_or_another_checkpoint_is_damage(run: SmallRun) -> None:
    message, ref = assigned(run)
    other = replace(ref, digest=Digest("0" * 64))
    trainee = replace(message.trainees[0], checkpoint=other)
    assert "instead of" in str(told(run, replace(message, trainees=(trainee,)), ref.key).damage)
    (run.run_dir / ref.key).rename(run.run_dir / "moved")
    assert "there is no checkpoint" in str(told(run, message, ref.key).damage)


def test_an_intact_checkpoint_is_not_damaged_whatever_a_learner_says(run: SmallRun) -> None:
    message, ref = assigned(run)
    event = told(run, message, ref.key)
    assert event.damage is None
    assert "the controller finds nothing wrong with it" in event.failed.reason


def test_a_directory_that_the_assignment_does_not_name_is_not_believed(run: SmallRun) -> None:
    message, _ = assigned(run)
    other = run.checkpoints_of(P1)[0].key
    (run.run_dir / other / WEIGHTS).unlink()
    event = told(run, message, other)
    assert event.damage is None
    assert "never named that to it" in event.failed.reason
