"""Bounds on connections, at a real server with a small room."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn

from tests.strangers import HALF_REQUEST
from tests.support import wait_until
from tools.web.connections import Room

TIMEOUT_S = 30.0
LONG_S = 1000.0


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


class Served:
    """Server of one word."""

    def __init__(self, room: Room) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        protocol: Any = room.protocol()
        config = uvicorn.Config(hello, http=protocol, log_level="critical", lifespan="off")
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
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        connection.sendall(words)
        return connection

    def answer(self) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request("GET", "/")
        text = connection.getresponse().read()
        connection.close()
        return text


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
        # The first of them went: those that are left are among the last four.
        wait_until(lambda: sum(map(is_open, found)) <= 4, timeout_s=TIMEOUT_S)
        assert not any(map(is_open, found[:6]))


def test_one_address_leaves_room_for_others(strangers: ExitStack) -> None:
    with Served(Room(most=100, most_per_address=3, wait_s=LONG_S)) as server:
        found = [strangers.enter_context(server.come()) for _ in range(8)]
        wait_until(lambda: sum(map(is_open, found)) == 3, timeout_s=TIMEOUT_S)
        assert server.answer() == b"hello"


@pytest.mark.parametrize("words", [b"", HALF_REQUEST, b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGE"])
def test_nobody_waits_for_ever(words: bytes, strangers: ExitStack) -> None:
    with Served(Room(wait_s=0.2)) as server:
        connection = strangers.enter_context(server.come(words))
        while is_open(connection):
            connection.setblocking(True)
            connection.settimeout(TIMEOUT_S)
            if not connection.recv(4096):
                break


def test_a_room_is_a_part_of_the_descriptors() -> None:
    assert Room.within(1024).most == 256
    assert Room.within(64).most == 16
    assert Room.within(1 << 20) == Room()
