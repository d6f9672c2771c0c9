from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import LearnerId
from arena.wire.codec import decode, encode
from arena.wire.messages import (
    Acknowledge,
    FromController,
    FromLearner,
    Goodbye,
    Message,
    Refuse,
    Stop,
    Welcome,
)
from arena.wire.session import (
    MAX_BAD_MESSAGES,
    ControllerSession,
    LearnerSession,
    SequenceWindow,
)
from tests.arena.wire.examples import EXAMPLES, HEADER, HEARTBEAT, HELLO, LEARNER, RUN, TRAIN

EPOCH = 2
HELLO_OF_B = replace(HELLO, learner=LearnerId("b"))
IDENTITY = LEARNER.encode()
NUM_PEERS = 64
"""Strangers that a controller remembers in these tests."""


@pytest.fixture
def controller() -> ControllerSession:
    return ControllerSession(run=RUN, epoch=EPOCH)


@pytest.fixture
def learner() -> LearnerSession:
    return LearnerSession(run=RUN, learner=LEARNER)


def refusal(opened: Message | list[bytes] | None) -> str:
    assert isinstance(opened, list)
    message = decode(opened)[1]
    assert isinstance(message, Refuse)
    return message.reason


@given(st.lists(st.integers(0, 1000)))
def test_a_window_accepts_each_number_once_in_any_order(numbers: list[int]) -> None:
    window = SequenceWindow()
    accepted = [number for number in numbers if window.accept(number)]
    assert accepted == list(dict.fromkeys(numbers))


def test_a_window_forgets_what_is_long_past_by_refusing_it() -> None:
    window = SequenceWindow()
    assert window.accept(5000)
    assert not window.accept(5000 - 1024)
    assert window.accept(5000 - 1023)
    assert window.accept(2**63 - 1)
    assert not window.accept(5001)


def test_a_message_of_this_run_and_epoch_is_delivered_once(
    controller: ControllerSession, learner: LearnerSession
) -> None:
    frames = learner.seal(HEARTBEAT, epoch=EPOCH)
    assert controller.open(IDENTITY, frames, now_s=0.0) == HEARTBEAT
    repeated = controller.open(IDENTITY, frames, now_s=0.0)
    assert repeated is None
    again = learner.seal(HEARTBEAT, epoch=EPOCH)
    assert controller.open(IDENTITY, again, now_s=0.0) == HEARTBEAT


def test_another_run_is_refused_and_the_learner_hears_it(controller: ControllerSession) -> None:
    stranger = LearnerSession(run="another", learner=LEARNER)
    opened = controller.open(IDENTITY, stranger.seal(HELLO, epoch=0), now_s=0.0)
    assert isinstance(opened, list)
    assert refusal(opened) == f"this is the controller of run {RUN}, not of another"
    answer = stranger.open(opened)
    assert answer is not None
    assert isinstance(answer[1], Refuse)


def test_another_version_is_told_both_numbers(controller: ControllerSession) -> None:
    frames = encode(HEADER, HELLO)
    frames[1] = bytes([9, frames[1][1]])
    opened = controller.open(IDENTITY, frames, now_s=0.0)
    assert refusal(opened) == (
        "the learner speaks protocol version 9, the controller 3: upgrade arena-league where the "
        "controller runs"
    )
    assert controller.num_bad == {"version": 1}


@pytest.mark.parametrize("message", [m for m in EXAMPLES if isinstance(m, FromController)], ids=str)
def test_a_learner_cannot_speak_as_the_controller(
    controller: ControllerSession, message: Message
) -> None:
    opened = controller.open(IDENTITY, encode(HEADER, message), now_s=0.0)
    assert "is a controller's message" in refusal(opened)


def test_a_bad_peer_is_told_once_a_second_and_then_ignored(
    controller: ControllerSession, learner: LearnerSession
) -> None:
    answers = [
        controller.open(IDENTITY, [b"garbage"], now_s=0.1 * number)
        for number in range(2 * MAX_BAD_MESSAGES)
    ]
    told = [number for number, answer in enumerate(answers) if answer is not None]
    assert told == [0, 10]
    assert len(controller.take_bad_messages()) == MAX_BAD_MESSAGES
    frames = learner.seal(HEARTBEAT, epoch=EPOCH)
    assert controller.open(IDENTITY, frames, now_s=99.0) is None
    # Another learner is not blamed for it.
    other = LearnerSession(run=RUN, learner=LearnerId("other"))
    frames = other.seal(HEARTBEAT, epoch=EPOCH)
    assert controller.open(b"other", frames, now_s=99.0) == HEARTBEAT


def test_peers_without_a_proper_name_are_answered_and_named_in_hexadecimal(
    controller: ControllerSession,
) -> None:
    opened = controller.open(b"\x00\x1b[2J\xff", [b"garbage"], now_s=0.0)
    assert "4 frames, not 1" in refusal(opened)
    assert controller.take_bad_messages()[0].peer == "001b5b324aff"


def test_what_was_wrong_is_counted_by_kind(
    controller: ControllerSession, learner: LearnerSession
) -> None:
    beat = learner.seal(HEARTBEAT, epoch=EPOCH)
    stranger = LearnerSession(run="another", learner=LearnerId("b"))
    for identity, frames in [
        (IDENTITY, beat),
        (IDENTITY, beat),
        (IDENTITY, [b"garbage"]),
        (IDENTITY, learner.seal(HEARTBEAT, epoch=1)),
        (b"a", beat),
        (b"b", stranger.seal(HELLO_OF_B, epoch=0)),
        *[(b"c", [b"garbage"])] * (MAX_BAD_MESSAGES + 3),
    ]:
        controller.open(identity, frames, now_s=0.0)
    assert controller.num_bad == {
        "repeated": 1,
        "malformed": 1 + MAX_BAD_MESSAGES,
        "fenced": 1,
        "impostor": 1,
        "run": 1,
        "muted": 3,
    }


def test_strangers_cannot_make_the_controller_forget_what_a_learner_has_said(
    controller: ControllerSession, learner: LearnerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.wire.session.MAX_PEERS", NUM_PEERS)
    controller.open(IDENTITY, learner.seal(HELLO, epoch=0), now_s=0.0)
    controller.seal(LEARNER, Welcome(heartbeat_s=1.0))
    said = learner.seal(HEARTBEAT, epoch=EPOCH)
    assert controller.open(IDENTITY, said, now_s=0.0) == HEARTBEAT
    for number in range(2 * NUM_PEERS):
        controller.open(b"stranger%d" % number, [], now_s=0.0)
    assert controller.open(IDENTITY, said, now_s=0.0) is None
    assert controller.num_bad["repeated"] == 1


HOLDER = LearnerId("learner-0.host-1-aa")
SUCCESSOR = LearnerId("learner-0.host-2-bb")


@pytest.fixture
def guarded() -> ControllerSession:
    return ControllerSession(run=RUN, epoch=EPOCH, has_keys=True)


@pytest.mark.parametrize("key", [None, "learner-1", "learner-00", "learner-0.host-1-aa", ""])
def test_a_key_speaks_only_for_its_own_learner(guarded: ControllerSession, key: str | None) -> None:
    session = LearnerSession(run=RUN, learner=HOLDER)
    frames = session.seal(HEARTBEAT, epoch=EPOCH)
    opened = guarded.open(HOLDER.encode(), frames, now_s=0.0, key=key)
    assert f"does not speak for learner {HOLDER}" in refusal(opened)
    opened = guarded.open(HOLDER.encode(), frames, now_s=0.0, key="learner-0")
    assert opened == HEARTBEAT


def test_a_key_has_one_learner_at_a_time_the_latest_that_was_welcomed(
    guarded: ControllerSession,
) -> None:
    first, second = (LearnerSession(run=RUN, learner=name) for name in (HOLDER, SUCCESSOR))

    def say(
        session: LearnerSession, learner: LearnerId, message: FromLearner
    ) -> Message | list[bytes] | None:
        frames = session.seal(message, epoch=EPOCH)
        return guarded.open(learner.encode(), frames, now_s=0.0, key="learner-0")

    assert isinstance(say(first, HOLDER, replace(HELLO, learner=HOLDER)), Message)
    guarded.seal(HOLDER, Welcome(heartbeat_s=1.0))
    assert say(first, HOLDER, HEARTBEAT) == HEARTBEAT
    assert isinstance(say(second, SUCCESSOR, replace(HELLO, learner=SUCCESSOR)), Message)
    # The successor has not been welcomed yet, and perhaps never will be.
    assert say(first, HOLDER, HEARTBEAT) == HEARTBEAT
    guarded.seal(SUCCESSOR, Welcome(heartbeat_s=1.0))
    assert say(second, SUCCESSOR, HEARTBEAT) == HEARTBEAT
    fenced = say(first, HOLDER, HEARTBEAT)
    assert isinstance(fenced, list)
    # The fenced process must not come back: two processes with one key would replace each other for
    # ever.
    refuse = Refuse(reason="another process has the key learner-0 now", again=False)
    assert decode(fenced)[1] == refuse


def test_many_strangers_do_not_make_a_learner_deaf(
    controller: ControllerSession, learner: LearnerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.wire.session.MAX_PEERS", NUM_PEERS)
    welcome = learner.open(controller.seal(LEARNER, Welcome(heartbeat_s=1.0)))
    assert welcome is not None
    for number in range(NUM_PEERS + 1):
        controller.open(b"stranger%d" % number, [], now_s=0.0)
    stop = learner.open(controller.seal(LEARNER, Stop(grace_s=1.0)))
    assert stop is not None
    assert stop[1] == Stop(grace_s=1.0)


def test_a_learner_hears_only_who_welcomed_it(learner: LearnerSession) -> None:
    old, new = (ControllerSession(run=RUN, epoch=epoch) for epoch in (1, 2))
    assert learner.open(old.seal(LEARNER, TRAIN)) is None
    assert learner.open(old.seal(LEARNER, Welcome(heartbeat_s=1.0))) is not None
    assert learner.open(old.seal(LEARNER, TRAIN)) is not None
    assert learner.open(new.seal(LEARNER, TRAIN)) is None
    assert learner.open(new.seal(LEARNER, Welcome(heartbeat_s=1.0))) is not None
    assert learner.open(old.seal(LEARNER, TRAIN)) is None
    assert learner.open(old.seal(LEARNER, Welcome(heartbeat_s=1.0))) is None
    assert learner.open(new.seal(LEARNER, TRAIN)) is not None


def test_a_learner_takes_each_message_once_and_ignores_nonsense(learner: LearnerSession) -> None:
    controller = ControllerSession(run=RUN, epoch=1)
    assert learner.open(controller.seal(LEARNER, Welcome(heartbeat_s=1.0))) is not None
    frames = controller.seal(LEARNER, Acknowledge(assignment_id=TRAIN.assignment_id, attempt=1))
    assert learner.open(frames) is not None
    assert learner.open(frames) is None
    assert learner.open([b"garbage"]) is None
    assert learner.open(controller.seal(LearnerId("other"), Stop(grace_s=0.0))) is None
    assert learner.open(encode(replace(HEADER, epoch=1), Goodbye(reason=""))) is None
    other_run = ControllerSession(run="another", epoch=1)
    assert learner.open(other_run.seal(LEARNER, Stop(grace_s=0.0))) is None
