"""Connections whose peers have proved nothing yet, and which of them make room.

Anybody who reaches a tcp port can connect and greet. Each connection takes a descriptor of the
process until libzmq gives its handshake up, after seconds; a stranger with some thousands would
take all. So those of which no message has come are counted, and the oldest makes room: a learner
proves its key within milliseconds. The bytes of a connection are libzmq's; what is known of it is
its descriptor, from events of the socket and from the messages that come.

Tests: `tests/arena/wire/test_zeromq.py`, `tests/faults/test_strangers.py`.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from threading import Lock

import zmq
from zmq.utils.monitor import parse_monitor_message

from arena.processes.paced_log import OneASecond

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

MAX_UNPROVEN = 1024
DESCRIPTOR_SHARE = 4
"""Largest part of the process's descriptors that are unproven connections: a quarter."""

EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED | zmq.Event.CLOSED

MAX_PORTION = 256
"""Events that are taken in at once: questions about keys come between."""


class UnprovenConnections:
    """Connections of a bound socket of which no message has come.

    `prove` belongs to the thread that receives messages, the rest to another one.

    Attributes:
        num_closed: Connections that were closed because there were too many.
    """

    def __init__(self, guarded: zmq.Socket[bytes]) -> None:
        """Listen to the events of a socket that is not bound yet."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(min(MAX_UNPROVEN, limit // DESCRIPTOR_SHARE), 1)
        self.monitor = guarded.get_monitor_socket(EVENTS)
        self._port = ""
        # Connections are keyed by descriptor, the oldest first.
        self._unproven: dict[int, None] = {}
        self._lock = Lock()
        self.num_closed = 0

    def prove(self, part: zmq.Frame) -> None:
        """Take note of the connection that a message came from."""
        # libzmq delivers messages only after the handshake, so the connection is proved.
        with self._lock:
            self._unproven.pop(int(part.get(zmq.SRCFD)), None)

    def take_events(self) -> None:
        """Take in what has happened, and close the oldest ones beyond the bound."""
        for _ in range(MAX_PORTION):
            try:
                event = parse_monitor_message(self.monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            is_new = event["event"] == zmq.Event.ACCEPTED
            if is_new:
                self._port = event["endpoint"].rpartition(b":")[2].decode()
            with self._lock:
                oldest = self._note(event["value"], is_new=is_new)
            if oldest is not None:
                self._close(oldest)

    def _note(self, descriptor: int, *, is_new: bool) -> int | None:
        """Note a connection that has come or gone; return the one that makes room for it."""
        self._unproven.pop(descriptor, None)
        if not is_new:
            return None
        self._unproven[descriptor] = None
        if len(self._unproven) <= self._most:
            return None
        oldest = next(iter(self._unproven))
        del self._unproven[oldest]
        return oldest

    def _close(self, descriptor: int) -> None:
        """End a connection; libzmq then closes its descriptor."""
        # If the descriptor belongs to another file by now, that file is left alone.
        with contextlib.suppress(OSError):
            connection = socket.socket(fileno=descriptor)
            try:
                name = connection.getsockname()
                # A Unix socket's name is a path or empty instead of a tuple.
                if isinstance(name, tuple) and str(name[1]) == self._port:
                    connection.shutdown(socket.SHUT_RDWR)
                    self.num_closed += 1
                    logger.warning("closed a connection that had proved no key: too many of them")
            finally:
                connection.detach()
