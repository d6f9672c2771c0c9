"""Checkpoints that learners publish or call corrupt are read before they are believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.files import file_records, read_manifest
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS
from arena.checkpoints.publish import publish
from arena.types import CheckpointRef, Digest, LearnerId, PolicyId
from arena.wire.messages import Published, Train
from populations.controller.server.checkpoint_tasks import (
    HARMLESS_BYTES,
    MAX_GROWTH,
    read_back,
    verify,
)
from populations.controller.state.events import AssignmentFailed, AssignmentFinished, Event
from tests.populations.rows import make_failed, make_finished
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
    failed = make_failed(message, kind="checkpoint", key=key)
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
    assert event.failed.reason == "it broke"


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


def verified(run: SmallRun, message: Train, ref: CheckpointRef, *, size_bytes: int) -> Event:
    """What follows from a published checkpoint whose weights are so large."""
    files = {WEIGHTS: b"w" * size_bytes, OPTIMIZER: b"o"}
    manifest = read_manifest(run.run_dir / ref.key)
    manifest = replace(manifest, files=file_records(files), agent_steps=manifest.agent_steps + 100)
    published = Published(
        policy=P0, checkpoint=publish(run.run_dir, manifest=manifest, files=files)
    )
    finished = make_finished(message, checkpoints=(published,))
    return verify(run.run_dir, LEARNER, finished, message)


def test_weights_that_grow_beyond_what_was_given_are_not_believed(run: SmallRun) -> None:
    message, ref = assigned(run)
    event = verified(run, message, ref, size_bytes=HARMLESS_BYTES)
    assert isinstance(event, AssignmentFinished)
    ref = event.finished.checkpoints[0].checkpoint
    trainee = replace(message.trainees[0], checkpoint=ref)
    message, most = replace(message, trainees=(trainee,)), MAX_GROWTH * HARMLESS_BYTES
    assert isinstance(verified(run, message, ref, size_bytes=most), AssignmentFinished)
    event = verified(run, message, ref, size_bytes=most + 1)
    assert isinstance(event, AssignmentFailed)
    assert f"weights of {most + 1} bytes" in event.failed.reason
    assert f"at most {MAX_GROWTH} times" in event.failed.reason


def test_damage_of_what_was_given_is_not_the_fault_of_what_was_published(run: SmallRun) -> None:
    message, ref = assigned(run)
    kept = (run.run_dir / ref.key / MANIFEST).read_bytes()
    event = verified(run, message, ref, size_bytes=1)
    assert isinstance(event, AssignmentFinished)
    manifest = read_manifest(run.run_dir / event.finished.checkpoints[0].checkpoint.key)
    (run.run_dir / ref.key / MANIFEST).write_bytes(kept[:-1])
    again = verify(run.run_dir, LEARNER, event.finished, message)
    assert again == AssignmentFinished(
        learner=LEARNER,
        finished=event.finished,
        manifests={event.finished.checkpoints[0].checkpoint.key: manifest},
    )
