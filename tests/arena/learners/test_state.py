from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.learners.state import (
    Command,
    Exit,
    LearnerState,
    Patience,
    StopWork,
)
from arena.types import AssignmentId
from arena.wire.messages import (
    Acknowledge,
    Assignment,
    Failed,
    Finished,
    FromController,
    Goodbye,
    Heartbeat,
    Refuse,
    Stop,
    Welcome,
)
from tests.arena.wire.examples import HELLO, TRAIN
from tests.populations.rows import make_evaluate, make_finished

BEGIN_S = 1000.0
PATIENCE = Patience(hello_s=(1.0, 4.0), resend_s=(2.0, 6.0), liveness_s=100.0, grace_s=30.0)
IDLE = Heartbeat(assignment_id=None, attempt=0, progress=0, agent_steps=0, rss_bytes=0)
FINISHED = make_finished(TRAIN)
NEXT = make_evaluate(assignment_id=AssignmentId(13), pairings=(), seed=5)
THIRD = replace(NEXT, assignment_id=AssignmentId(14))


class Learner:
    """A state machine with a clock that tests set."""

    def __init__(self, *, epoch: int = 0) -> None:
        self.state = LearnerState(hello=HELLO, patience=PATIENCE)
        self.now_s = BEGIN_S
        if epoch:
            assert self.greet() == [HELLO]
            assert self.hear(Welcome(heartbeat_s=10.0), epoch=epoch) == [IDLE]

    def greet(self) -> list[Command]:
        return self.state.greet(now_s=self.now_s)

    def finish(self, result: Finished | Failed) -> list[Command]:
        return self.state.finish(result, now_s=self.now_s)

    def hear(self, message: FromController, *, epoch: int = 1) -> list[Command]:
        return self.state.receive(message, epoch=epoch, now_s=self.now_s)

    def wait(self, duration_s: float) -> list[Command]:
        self.now_s += duration_s
        return self.state.tick(now_s=self.now_s)

    def times_of(self, command: Command, *, duration_s: float) -> list[float]:
        """When a command came, in seconds since the test began."""
        step_s = 0.125  # a power of two, so that times add up exactly
        return [
            self.now_s - BEGIN_S
            for _ in range(round(duration_s / step_s))
            if command in self.wait(step_s)
        ]

    def start(self, assignment: Assignment = TRAIN) -> None:
        commands = self.hear(assignment)
        assert commands == [assignment, beat(assignment)]


def beat(assignment: Assignment) -> Heartbeat:
    return replace(IDLE, assignment_id=assignment.assignment_id, attempt=assignment.attempt)


def acknowledge(message: Finished | Failed) -> Acknowledge:
    return Acknowledge(assignment_id=message.assignment_id, attempt=message.attempt)


def result_of(assignment: Assignment) -> Finished:
    return replace(FINISHED, assignment_id=assignment.assignment_id, attempt=assignment.attempt)


@pytest.fixture
def learner() -> Learner:
    return Learner(epoch=1)


def test_hello_is_said_with_growing_pauses_until_welcome() -> None:
    learner = Learner()
    assert learner.greet() == [HELLO]
    assert learner.times_of(HELLO, duration_s=20.0) == [
        1.0,
        3.0,
        7.0,
        11.0,
        15.0,
        19.0,
    ]
    assert learner.hear(Welcome(heartbeat_s=10.0), epoch=4) == [IDLE]
    assert learner.state.epoch == 4
    assert learner.wait(9.9) == []


def test_heartbeats_come_with_the_period_of_the_welcome(learner: Learner) -> None:
    assert learner.wait(9.9) == []
    assert learner.wait(0.1) == [IDLE]
    assert learner.wait(5.0) == []
    learner.start()
    assert learner.wait(9.9) == []
    assert learner.wait(0.1) == [beat(TRAIN)]


def test_nothing_is_taken_before_the_welcome_or_from_another_epoch() -> None:
    learner = Learner()
    learner.greet()
    assert learner.hear(TRAIN, epoch=0) == []
    assert learner.hear(TRAIN, epoch=1) == []
    learner = Learner(epoch=2)
    assert learner.hear(TRAIN, epoch=1) == []
    assert learner.hear(TRAIN, epoch=3) == []
    assert learner.hear(Stop(grace_s=1.0), epoch=1) == []
    assert learner.state.running is None


def test_one_assignment_runs_and_one_waits(learner: Learner) -> None:
    learner.start()
    assert learner.hear(NEXT) == []
    assert learner.finish(FINISHED) == [
        FINISHED,
        NEXT,
        beat(NEXT),
    ]


def test_a_third_assignment_takes_the_place_of_the_second_which_is_given_back(
    learner: Learner,
) -> None:
    learner.start()
    learner.hear(NEXT)
    (command,) = learner.hear(THIRD)
    assert isinstance(command, Failed)
    assert (command.assignment_id, command.kind) == (13, "stopped")
    assert list(learner.state.queued) == [THIRD]


def test_repeated_and_older_attempts_are_ignored(learner: Learner) -> None:
    second = replace(TRAIN, attempt=2)
    learner.start(second)
    assert learner.hear(second) == []
    assert learner.hear(TRAIN) == []
    learner.finish(result_of(second))
    assert learner.hear(second) == []
    learner.hear(acknowledge(result_of(second)))
    assert learner.hear(second) == []
    assert learner.hear(replace(TRAIN, attempt=3)) == [
        replace(TRAIN, attempt=3),
        beat(replace(TRAIN, attempt=3)),
    ]


def test_a_newer_attempt_replaces_what_runs(learner: Learner) -> None:
    learner.start()
    second = replace(TRAIN, attempt=2)
    assert learner.hear(second) == [StopWork()]
    assert learner.wait(10.0) == [IDLE]
    # The result of the first attempt is no longer accepted.
    assert learner.finish(FINISHED) == [second, beat(second)]
    assert learner.finish(result_of(second)) == [result_of(second)]


def test_results_are_sent_with_growing_pauses_until_acknowledged(learner: Learner) -> None:
    learner.start()
    assert learner.finish(FINISHED) == [FINISHED]
    assert learner.times_of(FINISHED, duration_s=30.0) == [
        2.0,
        6.0,
        12.0,
        18.0,
        24.0,
        30.0,
    ]
    assert learner.hear(acknowledge(FINISHED)) == []
    assert learner.hear(acknowledge(FINISHED)) == []
    assert FINISHED not in learner.wait(60.0)


def test_the_next_assignment_does_not_wait_for_the_acknowledgement(learner: Learner) -> None:
    learner.start()
    learner.finish(FINISHED)
    learner.start(NEXT)
    assert learner.wait(2.0) == [FINISHED]
    assert learner.finish(result_of(NEXT)) == [result_of(NEXT)]
    learner.hear(acknowledge(FINISHED))
    assert set(learner.state.results) == {(13, 1)}


@pytest.mark.parametrize(
    ("reason", "again", "code"),
    [
        ("fenced: epoch 1 is over, this is 2", True, 75),
        ("configuration differs: ...", False, 2),
        ("the peer speaks protocol version 1, this side 2", False, 2),
    ],
)
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_who_is_refused_goes(
    learner: Learner, reason: str, again: bool, code: int, epoch: int
) -> None:
    learner.start()
    refuse = Refuse(reason=reason, again=again)
    assert learner.hear(refuse, epoch=epoch) == [Exit(code=code, reason=reason)]
    assert learner.wait(100.0) == []
    assert learner.hear(NEXT) == []


def test_the_last_word_of_an_earlier_controller_does_not_count() -> None:
    learner = Learner(epoch=5)
    assert learner.hear(Refuse(reason="fenced: ..."), epoch=4) == []


def test_an_idle_learner_that_is_stopped_leaves_at_once(learner: Learner) -> None:
    reason = "the controller said so"
    assert learner.hear(Stop(grace_s=5.0)) == [
        Goodbye(reason=reason),
        Exit(code=0, reason=reason),
    ]


def test_a_stopped_learner_finishes_is_acknowledged_and_leaves(learner: Learner) -> None:
    learner.start()
    learner.hear(NEXT)
    assert learner.hear(Stop(grace_s=20.0)) == [StopWork()]
    assert learner.hear(THIRD) == []
    assert learner.finish(FINISHED) == [FINISHED]
    assert learner.wait(2.0) == [FINISHED]
    reason = "the controller said so"
    assert learner.hear(acknowledge(FINISHED)) == [
        Goodbye(reason=reason),
        Exit(code=0, reason=reason),
    ]


@pytest.mark.parametrize("has_result", [False, True])
def test_a_stopped_learner_does_not_wait_longer_than_it_was_told(
    learner: Learner, has_result: bool
) -> None:
    learner.start()
    learner.hear(Stop(grace_s=20.0))
    if has_result:
        learner.finish(FINISHED)
    assert not any(isinstance(command, Exit) for command in learner.wait(19.9))
    reason = "the controller said so; the time to finish is over"
    assert learner.wait(0.1)[-2:] == [
        Goodbye(reason=reason),
        Exit(code=0, reason=reason),
    ]


def test_a_second_stop_can_only_shorten_the_time(learner: Learner) -> None:
    learner.start()
    learner.hear(Stop(grace_s=20.0))
    assert learner.hear(Stop(grace_s=60.0)) == []
    assert learner.hear(Stop(grace_s=5.0)) == []
    assert isinstance(learner.wait(5.0)[-1], Exit)


def test_a_signal_stops_gently_and_a_second_one_at_once(learner: Learner) -> None:
    learner.start()
    assert learner.state.stop("SIGTERM", now_s=learner.now_s) == [StopWork()]
    assert learner.state.stop("SIGTERM", now_s=learner.now_s) == [
        Goodbye(reason="SIGTERM, twice"),
        Exit(code=0, reason="SIGTERM, twice"),
    ]


def test_who_was_never_welcomed_says_no_goodbye() -> None:
    learner = Learner()
    learner.greet()
    assert learner.state.stop("SIGINT", now_s=learner.now_s) == [Exit(code=0, reason="SIGINT")]


def test_a_silent_controller_is_asked_again_and_work_goes_on(learner: Learner) -> None:
    learner.start()
    assert learner.times_of(HELLO, duration_s=108.0) == [100.0, 101.0, 103.0, 107.0]
    assert learner.hear(Welcome(heartbeat_s=10.0)) == [beat(TRAIN)]
    assert HELLO not in learner.wait(99.0)


def test_a_new_epoch_takes_nothing_over_from_the_old_one(learner: Learner) -> None:
    learner.start()
    learner.finish(FINISHED)
    learner.start(NEXT)
    learner.hear(THIRD)
    assert learner.hear(Welcome(heartbeat_s=10.0), epoch=2) == [StopWork(), IDLE]
    assert learner.state.results == {}
    # An assignment that is given out again waits until the worker is free.
    again = replace(TRAIN, attempt=2)
    assert learner.hear(again, epoch=2) == []
    assert learner.finish(result_of(NEXT)) == [
        again,
        beat(again),
    ]


def test_a_late_welcome_of_an_earlier_epoch_changes_nothing() -> None:
    learner = Learner(epoch=5)
    assert learner.hear(Welcome(heartbeat_s=0.5), epoch=4) == []
    assert (learner.state.epoch, learner.state.heartbeat_s) == (5, 10.0)


def test_a_heartbeat_period_of_zero_does_not_flood() -> None:
    learner = Learner(epoch=1)
    learner.hear(Welcome(heartbeat_s=0.0))
    assert learner.wait(0.009) == []
    assert learner.wait(0.001) == [IDLE]


def test_the_next_tick_is_due_when_something_is() -> None:
    learner = Learner()
    learner.greet()
    assert learner.state.due_s() == 1001.0
    learner.hear(Welcome(heartbeat_s=10.0), epoch=1)
    assert learner.state.due_s() == 1010.0
    learner.start()
    learner.finish(FINISHED)
    assert learner.state.due_s() == 1002.0
    learner.hear(Stop(grace_s=0.5))
    assert learner.state.due_s() == 1000.5
