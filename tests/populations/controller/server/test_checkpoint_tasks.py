"""Checkpoints that learners publish or call corrupt are read before they are believed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.files import file_records, read_manifest
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS
from arena.checkpoints.publish import publish
from arena.types import AssignmentId, CheckpointRef, Digest, LearnerId, PolicyId
from arena.wire.messages import Failed, Published, Train
from populations.controller.server.checkpoint_tasks import (
    HARMLESS_BYTES,
    MAX_GROWTH,
    read_back,
    verify,
)
from populations.controller.server.server import Inbox
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    Event,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    StrangerSpoke,
)
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


ANN, BOB, EVE = LearnerId("ann"), LearnerId("bob"), LearnerId("eve")
LEASE = (AssignmentId(7), 1)


def left(learner: LearnerId) -> LearnerLeft:
    return LearnerLeft(learner=learner, reason="done")


def failed(learner: LearnerId) -> AssignmentFailed:
    fault = Failed(assignment_id=LEASE[0], attempt=LEASE[1], kind="error", reason="broken")
    return AssignmentFailed(learner=learner, failed=fault)


def test_a_new_one_is_empty() -> None:
    inbox = Inbox()
    assert inbox.is_empty
    assert inbox.num_awaited == 0
    assert list(inbox.drain()) == []


def test_what_is_said_again_is_in_line_once_where_it_was_first() -> None:
    inbox = Inbox()
    for learner in (ANN, BOB, ANN, BOB):
        inbox.record(left(learner))
    assert not inbox.is_empty
    assert list(inbox.drain()) == [left(ANN), left(BOB)]
    assert inbox.is_empty
    inbox.record(left(ANN))  # the report is repeated
    assert list(inbox.drain()) == [left(ANN)]


def test_kinds_and_leases_are_kept_apart() -> None:
    inbox = Inbox()
    inbox.record(StrangerSpoke(learner=ANN))
    inbox.record(failed(ANN))
    inbox.record(failed(ANN), LEASE)
    inbox.record(failed(ANN), LEASE)
    assert inbox.holds(ANN, StrangerSpoke)
    assert not inbox.holds(ANN, LearnerJoined)
    assert not inbox.holds(BOB, StrangerSpoke)
    assert list(inbox.drain()) == [StrangerSpoke(learner=ANN), failed(ANN), failed(ANN)]


def test_answers_come_in_the_order_of_their_coming_and_take_turns_with_what_is_heard() -> None:
    inbox = Inbox()
    early: Future[Event] = Future()
    late: Future[Event] = Future()
    inbox.expect(late)
    inbox.expect(early)
    assert inbox.is_empty
    assert inbox.num_awaited == 2
    early.set_result(LearnerUnreachable(learner=ANN))
    late.set_result(LearnerUnreachable(learner=BOB))
    for learner in (ANN, BOB, EVE):
        inbox.record(left(learner))
    assert list(inbox.drain()) == [
        left(ANN),
        LearnerUnreachable(learner=ANN),
        left(BOB),
        LearnerUnreachable(learner=BOB),
        left(EVE),
    ]
    assert inbox.num_awaited == 0


def test_what_was_not_taken_stays() -> None:
    inbox = Inbox()
    inbox.record(left(ANN))
    inbox.record(left(BOB))
    assert next(inbox.drain()) == left(ANN)
    assert list(inbox.drain()) == [left(BOB)]


def test_a_result_is_read_once_until_its_event_is_taken() -> None:
    inbox = Inbox()
    assert inbox.begins_reading(ANN, LEASE)
    assert not inbox.begins_reading(ANN, LEASE)
    assert inbox.begins_reading(BOB, LEASE)
    read: Future[Event] = Future()
    inbox.expect(read)
    read.set_result(failed(ANN))
    assert not inbox.begins_reading(ANN, LEASE)
    assert list(inbox.drain()) == [failed(ANN)]
    assert inbox.begins_reading(ANN, LEASE)
    assert not inbox.begins_reading(BOB, LEASE)
