"""What waits for the state machine: each thing once, and in a fair order."""

from __future__ import annotations

from concurrent.futures import Future

from arena.types import AssignmentId, LearnerId
from arena.wire.messages import Failed
from populations.controller.server.inbox import Inbox
from populations.controller.state.events import (
    AssignmentFailed,
    Event,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    StrangerSpoke,
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
    inbox.record(left(ANN))  # news again
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
