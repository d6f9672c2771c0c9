"""Bounds on connections, at a real server with a small room."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvicorn

from tests.strangers import HALF_REQUEST
from tests.support import wait_until
from tools.web.connections import MAX_HEADER_BYTES, Room

TIMEOUT_S = 30.0
LONG_S = 1000.0


PIPELINED = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 1500
BUFFER_BYTES = 1 << 14
STEP_BYTES, LONG_BYTES = 1 << 17, 1 << 20


async def hello(scope: Any, _receive: Any, send: Any) -> None:
    body = b"hello" if scope["path"] == "/" else bytes(LONG_BYTES)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


class Served:
    """Server of one word."""

    def __init__(self, room: Room) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Accepted connections inherit the small buffer, so unread answers soon fill it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self.port: int = self._listener.getsockname()[1]
        protocol: Any = room.protocol()
        config = uvicorn.Config(
            hello,
            http=protocol,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))

    def __enter__(self) -> Served:
        self._thread.start()
        wait_until(lambda: self._server.started, timeout_s=TIMEOUT_S)
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def come(self, words: bytes = HALF_REQUEST) -> socket.socket:
        """Connect and say something."""
        connection = socket.socket()
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(words)
        return connection

    def answer(self) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request("GET", "/")
        text = connection.getresponse().read()
        connection.close()
        return text

    @property
    def is_free(self) -> bool:
        return not self._server.server_state.connections

    @property
    def num_unread(self) -> int:
        """Connections whose answers nobody reads."""
        connections: set[Any] = set(self._server.server_state.connections)
        return sum(one.flow.write_paused for one in connections)


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.fixture
def strangers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_longest_waiting_connections_make_room_and_a_reader_is_answered(
    strangers: ExitStack,
) -> None:
    with Served(Room(most=4, most_per_address=4, wait_s=LONG_S)) as server:
        found = [strangers.enter_context(server.come()) for _ in range(10)]
        for _ in range(3):
            assert server.answer() == b"hello"
        # The oldest connections were closed: those that are left are among the last four.
        wait_until(lambda: sum(map(is_open, found)) <= 4, timeout_s=TIMEOUT_S)
        assert not any(map(is_open, found[:6]))


def test_one_address_leaves_room_for_others(strangers: ExitStack) -> None:
    with Served(Room(most=100, most_per_address=3, wait_s=LONG_S)) as server:
        found = [strangers.enter_context(server.come()) for _ in range(8)]
        wait_until(lambda: sum(map(is_open, found)) == 3, timeout_s=TIMEOUT_S)
        assert server.answer() == b"hello"


def test_who_never_reads_keeps_no_reader_out(strangers: ExitStack) -> None:
    with Served(Room(most=4, most_per_address=4, wait_s=LONG_S)) as server:
        for _ in range(4):
            strangers.enter_context(server.come(PIPELINED))
        wait_until(lambda: server.num_unread == 4, timeout_s=TIMEOUT_S)
        for _ in range(3):
            assert server.answer() == b"hello"
        # The server would wait for these connections.
        strangers.close()


def test_who_never_reads_is_closed(strangers: ExitStack) -> None:
    with Served(Room(wait_s=0.2)) as server:
        strangers.enter_context(server.come(PIPELINED))
        wait_until(lambda: server.num_unread == 1, timeout_s=TIMEOUT_S)
        wait_until(lambda: server.is_free, timeout_s=TIMEOUT_S)


def test_who_reads_slowly_gets_all(strangers: ExitStack) -> None:
    with Served(Room(wait_s=0.2)) as server:
        slow = strangers.enter_context(server.come(b"GET /long HTTP/1.0\r\n\r\n"))
        size = 0
        for step in range(1, 5):
            # The loop lasts as long as a connection may wait.
            strangers.enter_context(server.come(b"")).recv(1)
            while size < step * STEP_BYTES:
                size += len(slow.recv(BUFFER_BYTES))
        while data := slow.recv(BUFFER_BYTES):
            size += len(data)
        assert size > LONG_BYTES


@pytest.mark.parametrize("words", [b"", HALF_REQUEST, b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGE"])
def test_nobody_waits_for_ever(words: bytes, strangers: ExitStack) -> None:
    with Served(Room(wait_s=0.2)) as server:
        connection = strangers.enter_context(server.come(words))
        while is_open(connection):
            connection.setblocking(True)
            connection.settimeout(TIMEOUT_S)
            if not connection.recv(4096):
                break


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"x" * (MAX_HEADER_BYTES + 1),
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    ],
    ids=["no HTTP", "long headers", "negative length"],
)
def test_what_is_no_request_is_refused_and_closed(words: bytes, strangers: ExitStack) -> None:
    with Served(Room(wait_s=LONG_S)) as server:
        connection = strangers.enter_context(server.come(words))
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
        with suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
        assert server.answer() == b"hello"


def test_a_room_is_a_part_of_the_descriptors() -> None:
    assert Room.within(1024).most == 256
    assert Room.within(64).most == 16
    assert Room.within(1 << 20) == Room()
