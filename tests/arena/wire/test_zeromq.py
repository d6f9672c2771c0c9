"""A controller's socket among peers that are broken or mean harm."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import zmq
from msgspec.structs import replace

from arena.errors import AddressInUse, ConfigError
from arena.learners.loop import new_learner_id
from arena.types import LearnerId
from arena.wire import unproven
from arena.wire.codec import MAX_FRAME_BYTES, decode, encode
from arena.wire.keys import key_path, load_learner_keys, make_keys
from arena.wire.messages import Header, Heartbeat, Message, Refuse, Welcome
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from tests.arena.wire.examples import HEADER, HEARTBEAT, HELLO, LEARNER, RUN
from tests.strangers import GREETING, Crowd
from tests.support import wait_until

TIMEOUT_S = 10.0
EPOCH = 2


@pytest.fixture
def directory() -> Iterator[Path]:
    # a short path, because sockets allow 107 bytes
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def controller(directory: Path) -> Iterator[ZmqControllerTransport]:
    transport = ZmqControllerTransport(f"ipc://{directory}/s", run=RUN, epoch=EPOCH)
    yield transport
    transport.close(linger_s=0.0)


@contextmanager
def raw_peer(endpoint: str, *, identity: bytes = b"evil") -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.ROUTING_ID, identity)
        peer.setsockopt(zmq.RECONNECT_IVL, 10)
        peer.connect(endpoint)
        yield peer


def assert_works(controller: ZmqControllerTransport) -> None:
    """A proper learner can join and talk, whatever came before."""
    learner = ZmqLearnerTransport(controller.endpoint, run=RUN, learner=LEARNER)
    received: list[tuple[LearnerId, Message]] = []

    def is_heard(message: Message) -> bool:
        # Messages of other learners may still be on the way and are ignored.
        received.extend(pair for pair in controller.receive(0.02) if pair[0] == LEARNER)
        return (LEARNER, message) in received

    try:
        wait_until(lambda: learner.send(HELLO, epoch=0), timeout_s=TIMEOUT_S)
        wait_until(lambda: is_heard(HELLO), timeout_s=TIMEOUT_S)
        assert controller.send(LEARNER, Welcome(heartbeat_s=1.0))
        welcome = learner.receive(TIMEOUT_S)
        assert welcome is not None
        assert welcome[1] == Welcome(heartbeat_s=1.0)
        assert learner.send(HEARTBEAT, epoch=EPOCH)
        wait_until(lambda: is_heard(HEARTBEAT), timeout_s=TIMEOUT_S)
        assert received == [(LEARNER, HELLO), (LEARNER, HEARTBEAT)]
    finally:
        learner.close(linger_s=0.0)


def reasons(controller: ZmqControllerTransport) -> list[str]:
    """Wait until something bad came in, and say what was wrong with it."""
    found: list[str] = []

    def is_reported() -> bool:
        assert controller.receive(0.02) == []
        found.extend(bad.reason for bad in controller.take_bad_messages())
        return bool(found)

    wait_until(is_reported, timeout_s=TIMEOUT_S)
    return found


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([os.urandom(100)], "a message has 4 frames, not 1"),
        ([b""] * 5000, "a message has 4 frames, not 5"),
        ([b"\x80"] * 4, "begins with b'ARENA', not 80"),
        ([b"ARENA", b"\x07\x01", b"", b""], "protocol version 7, the controller 3"),
        ([*encode(HEADER, HELLO)[:3], b"\x91" * 1000 + b"\xc0"], "Hello: must be a map"),
        (encode(HEADER, HELLO), "a learner must speak for itself"),
    ],
    ids=["garbage", "5000 frames", "magic", "version", "nesting", "somebody else"],
)
def test_bad_messages_are_reported_answered_and_otherwise_ignored(
    controller: ZmqControllerTransport, frames: list[bytes], reason: str
) -> None:
    with raw_peer(controller.endpoint) as peer:
        peer.send_multipart(frames)
        assert reason in reasons(controller)[0]
        assert peer.poll(int(TIMEOUT_S * 1000))
        answer = decode(peer.recv_multipart())[1]
        assert isinstance(answer, Refuse)
        assert reason in answer.reason
        assert_works(controller)


def test_an_oversize_frame_ends_the_connection_only(controller: ZmqControllerTransport) -> None:
    with raw_peer(controller.endpoint) as peer:
        peer.send_multipart([b"ARENA", b"\x01\x01", b"", b"x" * (MAX_FRAME_BYTES + 1)])
        assert controller.receive(0.1) == []
        # The peer has reconnected, so its messages arrive again.
        peer.send(b"small")
        assert "4 frames, not 1" in reasons(controller)[0]
    assert_works(controller)


def test_a_burst_neither_blocks_nor_fills_memory(controller: ZmqControllerTransport) -> None:
    rss_before = psutil.Process().memory_info().rss
    beat = Heartbeat(assignment_id=None, attempt=0, progress=0, agent_steps=0, rss_bytes=0)
    body = encode(HEADER, beat)
    sent = 0
    with raw_peer(controller.endpoint, identity=b"burst") as peer:
        for sequence in range(20_000):
            header = Header(run=RUN, epoch=EPOCH, learner=LearnerId("burst"), sequence=sequence)
            frames = encode(header, beat)[:3] if sequence < 300 else [b"", b"", b""]
            try:
                peer.send_multipart([*frames, body[3]], flags=zmq.NOBLOCK)
            except zmq.Again:
                break  # back-pressure: the peer's own queue is full
            sent += 1
        portion = controller.receive(TIMEOUT_S)
        assert 0 < len(portion) <= 256
        wait_until(
            lambda: controller.receive(0.0) == [] and controller.take_bad_messages() == [],
            timeout_s=TIMEOUT_S,
        )
    assert_works(controller)
    assert sent > 300
    assert psutil.Process().memory_info().rss - rss_before < 64 << 20


def test_bytes_of_another_protocol_are_ignored() -> None:
    controller = ZmqControllerTransport("tcp://127.0.0.1:*", run=RUN, epoch=EPOCH)
    try:
        port = int(controller.endpoint.rsplit(":", 1)[1])
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500)
        for data in (request, client_hello, b"", os.urandom(64)):
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
                client.sendall(data)
        assert controller.receive(0.05) == []
        assert_works(controller)
    finally:
        controller.close(linger_s=0.0)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        endpoint = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        owner = rf"cannot listen on {endpoint}: .*in use by process {os.getpid()} \("
        with pytest.raises(AddressInUse, match=owner):
            ZmqControllerTransport(endpoint, run=RUN, epoch=EPOCH)


def test_only_this_machine_may_be_listened_on_and_connected_to() -> None:
    with pytest.raises(ConfigError, match="on loopback"):
        ZmqControllerTransport("tcp://0.0.0.0:5555", run=RUN, epoch=EPOCH)
    with pytest.raises(ConfigError, match="on loopback"):
        ZmqLearnerTransport("tcp://10.0.0.1:5555", run=RUN, learner=LEARNER)


def test_closing_removes_the_socket_and_frees_every_descriptor(directory: Path) -> None:
    before = psutil.Process().num_fds()
    controller = ZmqControllerTransport(f"ipc://{directory}/s", run=RUN, epoch=EPOCH)
    assert_works(controller)
    assert (directory / "s").is_socket()
    controller.close(linger_s=0.5)
    assert list(directory.iterdir()) == []
    assert psutil.Process().num_fds() == before


MOST = 8
UNPROVEN_TIMEOUT_S = 60.0


@pytest.fixture
def bounded_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ZmqControllerTransport]:
    monkeypatch.setattr(unproven, "MAX_UNPROVEN", MOST)
    keys = make_keys(tmp_path / "keys", names=("learner-0", "learner-1"))
    transport = ZmqControllerTransport("tcp://127.0.0.1:*", run=RUN, epoch=1, keys=keys)
    yield transport
    transport.close(linger_s=0.0)


@pytest.fixture
def learner(
    bounded_controller: ZmqControllerTransport, tmp_path: Path
) -> Iterator[ZmqLearnerTransport]:
    with joined(bounded_controller, tmp_path, "learner-0") as transport:
        yield transport


@contextmanager
def joined(
    bounded_controller: ZmqControllerTransport, directory: Path, key: str
) -> Iterator[ZmqLearnerTransport]:
    keys = load_learner_keys(key_path(directory / "keys", key))
    name = new_learner_id(keys.name)
    transport = ZmqLearnerTransport(bounded_controller.endpoint, run=RUN, learner=name, keys=keys)
    try:
        hello = replace(HELLO, learner=name)
        wait_until(lambda: transport.send(hello, epoch=0), timeout_s=UNPROVEN_TIMEOUT_S)
        assert heard(bounded_controller) == [(name, hello)]
        yield transport
    finally:
        transport.close(linger_s=0.0)


def heard(bounded_controller: ZmqControllerTransport) -> list[tuple[LearnerId, Message]]:
    received: list[tuple[LearnerId, Message]] = []

    def is_heard() -> bool:
        received.extend(bounded_controller.receive(0.02))
        return bool(received)

    wait_until(is_heard, timeout_s=UNPROVEN_TIMEOUT_S)
    return received


def connections(bounded_controller: ZmqControllerTransport) -> int:
    """Established connections of this process at the controller's end."""
    port = port_of(bounded_controller)
    found = psutil.Process().net_connections("tcp")
    return sum(c.laddr[1] == port and c.status == psutil.CONN_ESTABLISHED for c in found)


def port_of(bounded_controller: ZmqControllerTransport) -> int:
    return int(bounded_controller.endpoint.rsplit(":", 1)[1])


def test_strangers_beyond_the_bound_make_room_for_each_other_and_a_learner_stays(
    bounded_controller: ZmqControllerTransport, learner: ZmqLearnerTransport, tmp_path: Path
) -> None:
    with Crowd(port_of(bounded_controller), size=100, words=GREETING) as crowd:
        crowd.push(0.3)
        assert crowd.num_made > 100
        # libzmq closes connections later; a handshake that times out takes five seconds.
        wait_until(lambda: connections(bounded_controller) <= MOST + 1, timeout_s=3.0)
        # The connection that had proved its key is kept, and another one can join.
        assert learner.send(replace(HEARTBEAT), epoch=1)
        assert [type(message) for _, message in heard(bounded_controller)] == [type(HEARTBEAT)]
        with joined(bounded_controller, tmp_path, "learner-1"):
            pass
    assert bounded_controller.num_bad["unproven"] >= 100 - MOST


def test_a_descriptor_that_is_another_sockets_by_now_is_left_alone(
    bounded_controller: ZmqControllerTransport,
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


def test_connections_within_the_bound_are_left_alone(
    bounded_controller: ZmqControllerTransport,
) -> None:
    with Crowd(port_of(bounded_controller), size=MOST, words=GREETING) as crowd:
        crowd.push(0.2)
        assert crowd.num_made == MOST
        assert connections(bounded_controller) == MOST
    assert bounded_controller.num_bad == {}
