"""Strangers: many connections that say half a sentence and hold on."""

from __future__ import annotations

import contextlib
import select
import socket
import time

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
"""Greeting of ZMTP 3.0 by a client with CURVE; 64 bytes."""

HALF_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: "


class Crowd:
    """Connections to a port of this machine that are made anew as often as they are closed.

    Args:
        port: Port.
        size: Number of connections.
        words: What each says.
    """

    def __init__(self, port: int, *, size: int, words: bytes) -> None:
        self._address, self._size, self._words = ("127.0.0.1", port), size, words
        self._members: dict[int, socket.socket] = {}
        self._poller = select.poll()
        self.num_made = 0

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self._members.values():
            member.close()

    def push(self, duration_s: float) -> None:
        """Keep coming for a time."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            while len(self._members) < self._size:
                self._come()
            for descriptor, _ in self._poller.poll(20):
                self._hear(descriptor)

    def _come(self) -> None:
        member = socket.socket()
        member.setblocking(False)
        with contextlib.suppress(OSError):
            member.connect(self._address)
        self._members[member.fileno()] = member
        self._poller.register(member, select.POLLIN | select.POLLHUP | select.POLLERR)
        self.num_made += 1
        with contextlib.suppress(OSError):
            member.send(self._words)

    def _hear(self, descriptor: int) -> None:
        member = self._members[descriptor]
        with contextlib.suppress(OSError):
            try:
                if member.recv(4096):
                    return
            except BlockingIOError:
                return
        self._poller.unregister(descriptor)
        member.close()
        del self._members[descriptor]
