"""Leases: edges of the diagram in `populations.controller.state.leases`, and the clock."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, LearnerId
from arena.wire.messages import Evaluate, Heartbeat, Train
from populations.controller.state.events import AssignmentFailed
from populations.controller.state.leases import (
    STALL_GAPS,
    HeldAssignment,
    Learner,
    Patience,
    Pause,
    Slot,
    forgive,
    overdue,
)
from populations.records.rows import AssignmentRow
from tests.arena.wire.examples import HELLO
from tests.populations.controller.simulated import World, make_world
from tests.populations.rows import make_failed


def status(world: World, assignment_id: AssignmentId) -> str:
    """Return the state of an assignment as the diagram names it."""
    last = [
        row
        for row in world.committed
        if isinstance(row, AssignmentRow) and row.assignment_id == assignment_id
    ][-1]
    if last.status != "queued":
        assert assignment_id not in world.state.tables.assignments
        assert assignment_id not in world.state.crew.holders
        return last.status
    holder = world.state.crew.holders.get(assignment_id)
    if holder is None:
        return "open"
    (held,) = (
        held
        for held in world.state.crew.learners[holder].held
        if held.assignment_id == assignment_id
    )
    assert held.attempt == last.attempt
    return "sent" if held.started_s is None else "running"


def first_lease(world: World, learner: LearnerId) -> Train | Evaluate:
    return world.given[learner][0]


def fail(world: World, learner: LearnerId, *, kind: str = "error") -> AssignmentId:
    """Let a learner fail what it runs."""
    message = world.given[learner].pop(0)
    failed = make_failed(
        message,
        kind=kind,
        policy=message.trainees[0].policy if isinstance(message, Train) else None,
    )
    world.handle(AssignmentFailed(learner=learner, failed=failed))
    return message.assignment_id


def test_an_assignment_is_sent_then_runs_then_is_finished() -> None:
    world = make_world()
    learner = world.join()
    message = first_lease(world, learner)
    assert status(world, message.assignment_id) == "sent"
    world.beat(learner)
    assert status(world, message.assignment_id) == "running"
    event = world.work(learner)
    assert event is not None
    world.handle(event)
    assert status(world, message.assignment_id) == "finished"


def test_a_failure_leaves_the_lease_to_the_other_learner() -> None:
    world = make_world()
    learner, other = world.join(), world.join()
    world.beat(learner)
    assignment_id = fail(world, learner)
    # The learner may get work, but not the assignment that failed there.
    assert all(message.assignment_id != assignment_id for message in world.given[learner])
    while status(world, assignment_id) == "open":
        event = world.work(other)
        assert event is not None
        world.handle(event)
    assert world.state.crew.holders[assignment_id] == other
    assert world.state.tables.assignments[assignment_id].attempt == 2


def test_an_environment_that_breaks_for_the_only_learner_closes_the_lease() -> None:
    world = make_world()
    learner = world.join()
    assignment_id = fail(world, learner, kind="environment")
    assert status(world, assignment_id) == "failed"
    assert [one.kind for one in world.state.blame.ledger.outcomes] == ["environment"]


PATIENCE = Patience(liveness_s=10.0, stall_s=60.0, resend_s=2.0)


def a_learner(*held: HeldAssignment, heard_s: float = 0.0) -> Learner:
    return Learner(hello=HELLO, slot=None, last_heard_s=heard_s, held=list(held))


def lease(
    number: int = 1, *, given_s: float = 0.0, started_s: float | None = None
) -> HeldAssignment:
    held = HeldAssignment(assignment_id=AssignmentId(number), attempt=1, given_s=given_s)
    held.started_s = started_s
    return held


def heartbeat(*, progress: int, agent_steps: int = 0, rss_bytes: int = 1) -> Heartbeat:
    return Heartbeat(
        assignment_id=AssignmentId(1),
        attempt=1,
        progress=progress,
        agent_steps=agent_steps,
        rss_bytes=rss_bytes,
    )


def test_silence_makes_a_learner_overdue_after_liveness_s() -> None:
    learner = a_learner()
    assert overdue(learner, now_s=10.0, patience=PATIENCE) is None
    assert overdue(learner, now_s=10.5, patience=PATIENCE) == "silent for 10.5 s"


def test_a_learner_that_does_not_begin_or_does_not_go_on_is_overdue() -> None:
    waiting = a_learner(lease(), heard_s=61.0)
    assert overdue(waiting, now_s=60.0, patience=PATIENCE) is None
    reason = overdue(waiting, now_s=61.0, patience=PATIENCE)
    assert reason == "did not start its work for 61.0 s"
    stuck = a_learner(lease(started_s=0.0), heard_s=61.0)
    assert overdue(stuck, now_s=61.0, patience=PATIENCE) == "no progress for 61.0 s"


def test_slow_progress_is_allowed_ten_of_its_longest_gaps() -> None:
    learner = a_learner(lease())
    learner.hear(heartbeat(progress=0), now_s=0.0)
    learner.hear(heartbeat(progress=1), now_s=20.0)
    assert learner.longest_gap_s == 20.0
    learner.last_heard_s = 20.0 + STALL_GAPS * 20.0
    assert overdue(learner, now_s=220.0, patience=PATIENCE) is None
    assert overdue(learner, now_s=220.5, patience=PATIENCE) == "no progress for 200.5 s"


def test_the_rate_is_smoothed_by_half() -> None:
    learner = a_learner(lease())
    learner.hear(heartbeat(progress=1, agent_steps=0), now_s=1.0)
    learner.hear(heartbeat(progress=2, agent_steps=100), now_s=2.0)
    assert learner.rate == pytest.approx(50.0)  # (0 + 100 per s) / 2
    learner.hear(heartbeat(progress=3, agent_steps=200), now_s=4.0)
    assert learner.rate == pytest.approx(50.0)  # (50 + 50 per s) / 2


def test_a_lease_is_released_once_and_only_in_the_attempt_that_is_held() -> None:
    learner = a_learner(lease(1), lease(2))
    assert learner.release(AssignmentId(1), attempt=2, now_s=3.0) is None
    released = learner.release(AssignmentId(1), attempt=1, now_s=4.0)
    assert released is not None
    assert released.lease == (1, 1)
    assert learner.release(AssignmentId(1), attempt=1, now_s=5.0) is None
    assert learner.has(AssignmentId(2), 1)
    assert (learner.progress_at_s, learner.last_heard_s) == (4.0, 5.0)


def test_memory_explains_a_kill_only_where_it_grew_by_half_and_by_128_mib() -> None:
    learner = a_learner()
    mib = 2**20
    for first, last, is_explained in (
        (1000 * mib, 1400 * mib, False),
        (100 * mib, 200 * mib, False),
        (200 * mib, 400 * mib, True),
    ):
        learner.first_rss_bytes, learner.rss_bytes = first, last
        assert (learner.memory_growth() is not None) == is_explained
    assert learner.memory_growth() == "its memory grew from 200 to 400 MiB"


def test_a_slot_waits_twice_as_long_after_each_crash_up_to_the_longest_pause() -> None:
    slot = Slot(populations=())
    patience = replace(PATIENCE, backoff_s=(0.5, 3.0))
    waits = []
    for _ in range(5):
        slot.backoff(now_s=0.0, patience=patience, jitter=0.5)
        waits.append(slot.start_at_s)
    assert waits == pytest.approx([0.5, 1.0, 2.0, 3.0, 3.0])
    slot.backoff(now_s=0.0, patience=patience, jitter=0.0)
    assert slot.start_at_s == pytest.approx(0.8 * 3.0)


def test_a_gap_moves_every_deadline() -> None:
    learner = a_learner(lease(1, started_s=2.0), lease(2, given_s=1.0), heard_s=5.0)
    slots = [Slot(populations=(), started_s=4.0), Slot(populations=())]
    pause = Pause(reason="full", since_s=0.0, wait_s=1.0, retry_at_s=1.0, tried_at_s=0.5)
    forgive([learner], slots, pause, gap_s=100.0)
    # As before, one assignment is older than the try and one is the try.
    assert pause.tried_at_s == 100.5
    assert (learner.last_heard_s, learner.progress_at_s) == (105.0, 100.0)
    assert [held.given_s for held in learner.held] == [100.0, 101.0]
    assert [held.started_s for held in learner.held] == [102.0, None]
    assert [slot.started_s for slot in slots] == [104.0, None]
