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

from arena.errors import AddressInUse, ConfigError, VersionMismatch
from arena.types import LearnerId
from arena.wire.codec import MAX_FRAME_BYTES, decode, encode
from arena.wire.messages import Header, Heartbeat, Message, Refuse, Welcome
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from tests.arena.wire.examples import HEADER, HEARTBEAT, HELLO, LEARNER, RUN
from tests.support import wait_until

TIMEOUT_S = 10.0
EPOCH = 2


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as path:  # short: 107 bytes in all
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
        # Of others' messages some may still be under way, and they are not this learner's.
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


def test_a_learner_of_an_older_release_hears_a_version_it_can_name(directory: Path) -> None:
    """The controller of a later version answers; this release's learner says both numbers."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as later:
        later.bind(f"ipc://{directory}/s")
        learner = ZmqLearnerTransport(f"ipc://{directory}/s", run=RUN, learner=LEARNER)
        wait_until(lambda: learner.send(HELLO, epoch=0), timeout_s=TIMEOUT_S)
        identity = later.recv_multipart()[0]
        later.send_multipart([identity, b"ARENA", b"\x04\x11", b"?", b"?"])
        with pytest.raises(VersionMismatch, match="version 3, the controller 4: upgrade"):
            learner.receive(TIMEOUT_S)
        learner.close(linger_s=0.0)


def test_an_oversize_frame_ends_the_connection_only(controller: ZmqControllerTransport) -> None:
    with raw_peer(controller.endpoint) as peer:
        peer.send_multipart([b"ARENA", b"\x01\x01", b"", b"x" * (MAX_FRAME_BYTES + 1)])
        assert controller.receive(0.1) == []
        # The peer is back by itself; what it says now arrives.
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
