"""Connections that prove nothing, to a socket with keys."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import zmq
from msgspec.structs import replace

from arena.learners.loop import new_learner_id
from arena.types import LearnerId
from arena.wire import unproven
from arena.wire.keys import key_path, load_learner_keys, make_keys
from arena.wire.messages import Message
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from tests.arena.wire.examples import HEARTBEAT, HELLO, RUN
from tests.strangers import GREETING, Crowd
from tests.support import wait_until

MOST = 8
TIMEOUT_S = 60.0


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZmqControllerTransport]:
    monkeypatch.setattr(unproven, "MAX_UNPROVEN", MOST)
    keys = make_keys(tmp_path / "keys", names=("learner-0", "learner-1"))
    transport = ZmqControllerTransport("tcp://127.0.0.1:*", run=RUN, epoch=1, keys=keys)
    yield transport
    transport.close(linger_s=0.0)


@pytest.fixture
def learner(controller: ZmqControllerTransport, tmp_path: Path) -> Iterator[ZmqLearnerTransport]:
    with joined(controller, tmp_path, "learner-0") as transport:
        yield transport


@contextmanager
def joined(
    controller: ZmqControllerTransport, directory: Path, key: str
) -> Iterator[ZmqLearnerTransport]:
    keys = load_learner_keys(key_path(directory / "keys", key))
    name = new_learner_id(keys.name)
    transport = ZmqLearnerTransport(controller.endpoint, run=RUN, learner=name, keys=keys)
    try:
        hello = replace(HELLO, learner=name)
        wait_until(lambda: transport.send(hello, epoch=0), timeout_s=TIMEOUT_S)
        assert heard(controller) == [(name, hello)]
        yield transport
    finally:
        transport.close(linger_s=0.0)


def heard(controller: ZmqControllerTransport) -> list[tuple[LearnerId, Message]]:
    received: list[tuple[LearnerId, Message]] = []

    def is_heard() -> bool:
        received.extend(controller.receive(0.02))
        return bool(received)

    wait_until(is_heard, timeout_s=TIMEOUT_S)
    return received


def connections(controller: ZmqControllerTransport) -> int:
    """Established connections of this process at the controller's end."""
    port = port_of(controller)
    found = psutil.Process().net_connections("tcp")
    return sum(c.laddr[1] == port and c.status == psutil.CONN_ESTABLISHED for c in found)


def port_of(controller: ZmqControllerTransport) -> int:
    return int(controller.endpoint.rsplit(":", 1)[1])


def test_strangers_beyond_the_bound_make_room_for_each_other_and_a_learner_stays(
    controller: ZmqControllerTransport, learner: ZmqLearnerTransport, tmp_path: Path
) -> None:
    with Crowd(port_of(controller), size=100, words=GREETING) as crowd:
        crowd.push(0.3)
        assert crowd.num_made > 100
        # They are closed at libzmq's leisure; a handshake that times out takes five seconds.
        wait_until(lambda: connections(controller) <= MOST + 1, timeout_s=3.0)
        # The one that had proved its key is among those that are left, and another one joins.
        assert learner.send(replace(HEARTBEAT), epoch=1)
        assert [type(message) for _, message in heard(controller)] == [type(HEARTBEAT)]
        with joined(controller, tmp_path, "learner-1"):
            pass
    assert controller.num_bad["unproven"] >= 100 - MOST


def test_a_descriptor_that_is_another_sockets_by_now_is_left_alone(
    controller: ZmqControllerTransport,
) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as guarded:
        connections = unproven.UnprovenConnections(guarded)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            connections._close(ours.fileno())
            ours.sendall(b"word")
            assert theirs.recv(4) == b"word"
        guarded.disable_monitor()
        connections.monitor.close()


def test_connections_within_the_bound_are_left_alone(controller: ZmqControllerTransport) -> None:
    with Crowd(port_of(controller), size=MOST, words=GREETING) as crowd:
        crowd.push(0.2)
        assert crowd.num_made == MOST
        assert connections(controller) == MOST
    assert controller.num_bad == {}
