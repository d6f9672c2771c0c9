"""What every pair of transports does. A new one is a new fixture in ``PAIRS``."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
from msgspec.structs import replace

from arena.errors import WireError
from arena.types import AssignmentId, LearnerId
from arena.wire.in_memory import InMemoryHub
from arena.wire.messages import Goodbye, Header, Heartbeat, Hello, Message, Refuse, Stop, Welcome
from arena.wire.transport import ControllerTransport, LearnerTransport
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from tests.arena.wire.examples import EXAMPLES, HELLO, RUN
from tests.support import next_epoch, wait_until

TIMEOUT_S = 10.0
EPOCH = 3


@dataclass
class Pair:
    """Two ends, and how to make more of them."""

    controller: ControllerTransport
    connect: Callable[[LearnerId], LearnerTransport]
    replace_controller: Callable[[int], ControllerTransport]
    received: list[tuple[LearnerId, Message]] = field(default_factory=list)

    def receive(self, number: int) -> list[tuple[LearnerId, Message]]:
        def enough() -> bool:
            self.received += self.controller.receive(0.05)
            return len(self.received) >= number

        wait_until(enough, timeout_s=TIMEOUT_S)
        received, self.received = self.received, []
        return received

    def join(self, learner: LearnerId, *, epoch: int = EPOCH) -> LearnerTransport:
        transport = self.connect(learner)
        hello = hello_of(learner)
        wait_until(lambda: transport.send(hello, epoch=0), timeout_s=TIMEOUT_S)
        assert self.receive(1) == [(learner, hello)]
        assert self.controller.send(learner, Welcome(heartbeat_s=1.0))
        header, message = hear(transport)
        assert (header.epoch, message) == (epoch, Welcome(heartbeat_s=1.0))
        return transport


@contextmanager
def in_memory() -> Iterator[Pair]:
    hub = InMemoryHub(run=RUN, epoch=EPOCH)
    pair = Pair(hub.controller, hub.learner, partial(next_epoch, hub))
    yield pair
    pair.controller.close(linger_s=0.0)


@contextmanager
def over_zeromq(make_endpoint: Callable[[str], str]) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as directory:
        learners: list[LearnerTransport] = []
        controllers = [ZmqControllerTransport(make_endpoint(directory), run=RUN, epoch=EPOCH)]

        def connect(learner: LearnerId) -> LearnerTransport:
            learners.append(ZmqLearnerTransport(controllers[-1].endpoint, run=RUN, learner=learner))
            return learners[-1]

        def replace_controller(epoch: int) -> ControllerTransport:
            endpoint = controllers[-1].endpoint
            controllers[-1].close(linger_s=0.0)
            controllers.append(ZmqControllerTransport(endpoint, run=RUN, epoch=epoch))
            return controllers[-1]

        yield Pair(controllers[0], connect, replace_controller)
        for learner in learners:
            learner.close(linger_s=0.0)
        for controller in controllers:
            controller.close(linger_s=0.0)


PAIRS: dict[str, Callable[[], AbstractContextManager[Pair]]] = {
    "in_memory": in_memory,
    "zeromq_ipc": lambda: over_zeromq(lambda directory: f"ipc://{directory}/s"),
    "zeromq_tcp": lambda: over_zeromq(lambda directory: "tcp://127.0.0.1:*"),
}


@pytest.fixture(params=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with PAIRS[request.param]() as opened:
        yield opened


def hello_of(learner: LearnerId) -> Hello:
    return replace(HELLO, learner=learner)


def hear(transport: LearnerTransport) -> tuple[Header, Message]:
    heard: list[tuple[Header, Message]] = []

    def listen() -> bool:
        received = transport.receive(0.05)
        if received is not None:
            heard.append(received)
        return bool(heard)

    wait_until(listen, timeout_s=TIMEOUT_S)
    return heard[0]


def heartbeat(progress: int) -> Heartbeat:
    return Heartbeat(
        assignment_id=AssignmentId(1), attempt=1, progress=progress, agent_steps=0, rss_bytes=0
    )


ANNA, BERT = LearnerId("anna"), LearnerId("bert")


def test_messages_arrive_in_order_under_their_senders_name(pair: Pair) -> None:
    anna, bert = pair.join(ANNA), pair.join(BERT)
    for progress in range(20):
        assert anna.send(heartbeat(progress), epoch=EPOCH)
        assert bert.send(heartbeat(100 + progress), epoch=EPOCH)
    received = pair.receive(40)
    assert [m for who, m in received if who == ANNA] == [heartbeat(k) for k in range(20)]
    assert [m for who, m in received if who == BERT] == [heartbeat(100 + k) for k in range(20)]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_passes(pair: Pair, message: Message) -> None:
    anna = pair.join(ANNA)
    match message:
        case Hello():
            pass  # the message arrived when the peer joined
        case _ if type(message).__name__ in ("Heartbeat", "Finished", "Failed", "Goodbye"):
            assert anna.send(message, epoch=EPOCH)  # type: ignore[arg-type]
            assert pair.receive(1) == [(ANNA, message)]
        case _:
            assert pair.controller.send(ANNA, message)  # type: ignore[arg-type]
            assert hear(anna)[1] == message


def test_what_cannot_be_delivered_is_said_to_be(pair: Pair) -> None:
    assert not pair.controller.send(LearnerId("nobody"), Stop(grace_s=1.0))


def test_a_learner_that_does_not_read_fills_its_own_queue_only(pair: Pair) -> None:
    pair.join(ANNA)
    bert = pair.join(BERT)
    big = Refuse(reason="x" * 16000)
    sent = 0
    while pair.controller.send(ANNA, big):
        sent += 1
        assert sent < 100_000
    assert pair.controller.send(BERT, Stop(grace_s=1.0))
    assert hear(bert)[1] == Stop(grace_s=1.0)


def test_waiting_ends_after_the_timeout(pair: Pair) -> None:
    anna = pair.join(ANNA)
    began_s = time.monotonic()
    assert pair.controller.receive(0.05) == []
    assert anna.receive(0.05) is None
    assert 0.09 < time.monotonic() - began_s < TIMEOUT_S


def test_a_learner_can_be_woken_from_another_thread(pair: Pair) -> None:
    anna = pair.join(ANNA)
    threading.Timer(0.05, anna.wake).start()
    began_s = time.monotonic()
    assert anna.receive(60.0) is None
    assert time.monotonic() - began_s < TIMEOUT_S


def test_waking_before_is_not_lost_and_waking_often_is_harmless(pair: Pair) -> None:
    anna = pair.join(ANNA)
    for _ in range(1000):
        anna.wake()
    began_s = time.monotonic()
    assert anna.receive(60.0) is None
    assert time.monotonic() - began_s < TIMEOUT_S
    assert pair.controller.send(ANNA, Stop(grace_s=1.0)) or hear(anna)


def test_another_epoch_is_fenced(pair: Pair) -> None:
    anna = pair.join(ANNA)
    pair.controller = pair.replace_controller(EPOCH + 1)
    refused: list[Message] = []

    def is_refused() -> bool:
        anna.send(heartbeat(1), epoch=EPOCH)  # messages on the way to the old controller are lost
        assert pair.controller.receive(0.02) == []
        answer = anna.receive(0.02)
        if answer is not None:
            refused.append(answer[1])
        return bool(refused)

    wait_until(is_refused, timeout_s=TIMEOUT_S)
    reason = f"fenced: epoch {EPOCH} is over, this is {EPOCH + 1}"
    assert refused == [Refuse(reason=reason, again=True)]
    assert {bad.peer for bad in pair.controller.take_bad_messages()} == {ANNA}


def test_the_next_controller_is_joined_by_another_hello(pair: Pair) -> None:
    anna = pair.join(ANNA)
    pair.controller = pair.replace_controller(EPOCH + 1)
    received: list[tuple[LearnerId, Message]] = []

    def is_heard() -> bool:
        anna.send(hello_of(ANNA), epoch=EPOCH)  # messages on the way to the old controller are lost
        received.extend(pair.controller.receive(0.02))
        return bool(received)

    wait_until(is_heard, timeout_s=TIMEOUT_S)
    assert set(received) == {(ANNA, hello_of(ANNA))}
    assert pair.controller.send(ANNA, Welcome(heartbeat_s=2.0))
    assert hear(anna)[0].epoch == EPOCH + 1
    assert anna.send(heartbeat(1), epoch=EPOCH + 1)
    wait_until(lambda: (ANNA, heartbeat(1)) in pair.controller.receive(0.05), timeout_s=TIMEOUT_S)


def test_what_breaks_a_rule_is_not_sent(pair: Pair) -> None:
    anna = pair.join(ANNA)
    with pytest.raises(WireError, match="grace_s: must be float >= 0"):
        pair.controller.send(ANNA, Stop(grace_s=-1.0))
    with pytest.raises(WireError, match="reason: must be str of length <= 16384"):
        anna.send(Goodbye(reason="x" * 20000), epoch=EPOCH)
    assert anna.send(heartbeat(1), epoch=EPOCH)
    assert pair.receive(1) == [(ANNA, heartbeat(1))]


def test_closing_twice_is_harmless_and_waking_afterwards_too(pair: Pair) -> None:
    anna = pair.join(ANNA)
    for _ in range(2):
        anna.close(linger_s=0.0)
        pair.controller.close(linger_s=0.0)
    anna.wake()


def test_a_farewell_arrives_though_the_learner_closes_at_once(pair: Pair) -> None:
    anna = pair.join(ANNA)
    assert anna.send(Goodbye(reason="done"), epoch=EPOCH)
    anna.close(linger_s=TIMEOUT_S)
    assert pair.receive(1) == [(ANNA, Goodbye(reason="done"))]
