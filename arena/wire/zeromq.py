"""Both transports over ZeroMQ: the controller is a ROUTER, learners are DEALERs.

A learner's socket identity is its id, which is new for each process: ZeroMQ silently ignores a
second peer with an identity that is there already.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time

import zmq

from arena.errors import AddressInUse
from arena.types import LearnerId
from arena.wire.address import check_endpoint, remove_socket
from arena.wire.codec import MAX_FRAME_BYTES, NUM_FRAMES
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage, ControllerSession, LearnerSession

MAX_QUEUED = 256
MAX_PORTION = 256
"""Messages that one ``receive`` takes in, so that a burst cannot keep the controller."""

_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.LINGER: 0,
    zmq.MAXMSGSIZE: MAX_FRAME_BYTES,
    zmq.SNDHWM: MAX_QUEUED,
    zmq.RCVHWM: MAX_QUEUED,
    zmq.HANDSHAKE_IVL: 5000,
    # These find half-open connections only: a stuck Python process answers them. Liveness is
    # judged by Heartbeat messages.
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
}
_ROUTER_OPTIONS: dict[zmq.SocketOption, int] = {zmq.ROUTER_MANDATORY: 1}
_DEALER_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.IMMEDIATE: 1,  # nothing is queued for a controller that is not there
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 5000,
}


class ZmqControllerTransport:
    """A bound ROUTER. Owned by one thread."""

    def __init__(self, endpoint: str, *, run: str, epoch: int) -> None:
        """Listen.

        Raises:
            ConfigError: If the endpoint could be reached from elsewhere.
            AddressInUse: If the address is in use or cannot be listened on.
        """
        endpoint = check_endpoint(endpoint)
        self._session = ControllerSession(run=run, epoch=epoch)
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.ROUTER, endpoint, _ROUTER_OPTIONS)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise AddressInUse(f"cannot listen on {endpoint}: {error.strerror}") from error
        self._endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def endpoint(self) -> str:
        """Where learners connect to; the port is the real one."""
        return self._endpoint

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """See `ControllerTransport`."""
        received: list[tuple[LearnerId, Message]] = []
        if not self._socket.poll(_milliseconds(timeout_s)):
            return received
        for _ in range(MAX_PORTION):
            parts = _receive_parts(self._socket, limit=NUM_FRAMES + 1)
            if parts is None:
                break
            identity, *frames = parts
            opened = self._session.open(identity, frames, now_s=time.monotonic())
            if opened.answer is not None:
                self._send(identity, opened.answer)
            if opened.message is not None:
                received.append((LearnerId(identity.decode()), opened.message))
        return received

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """See `ControllerTransport`."""
        return self._send(learner.encode(), self._session.seal(learner, message))

    def _send(self, identity: bytes, frames: list[bytes]) -> bool:
        try:
            self._socket.send_multipart([identity, *frames], flags=zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def take_bad_messages(self) -> list[BadMessage]:
        """See `ControllerTransport`."""
        return self._session.take_bad_messages()

    def disconnect(self, learner: LearnerId) -> None:
        """See `ControllerTransport`: ZeroMQ cannot close one peer's connection of a ROUTER."""
        self._session.mute(learner)

    def close(self, *, linger_s: float) -> None:
        """See `ControllerTransport`."""
        if self._context.closed:
            return
        self._context.destroy(linger=_milliseconds(linger_s))
        remove_socket(self._endpoint)


class ZmqLearnerTransport:
    """A connected DEALER. Owned by one thread, but for ``wake``."""

    def __init__(self, endpoint: str, *, run: str, learner: LearnerId) -> None:
        """Begin to connect; goes on, and reconnects, by itself.

        Raises:
            ConfigError: If the endpoint is not on this machine.
        """
        endpoint = check_endpoint(endpoint)
        self._session = LearnerSession(run=run, learner=learner)
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.DEALER, endpoint, _DEALER_OPTIONS)
        self._socket.setsockopt(zmq.ROUTING_ID, learner.encode())
        self._socket.connect(endpoint)
        # Reentrant: a signal handler may interrupt its own thread in ``wake``.
        self._wake_lock = threading.RLock()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._wake_read, select.POLLIN)

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """See `LearnerTransport`."""
        ready = dict(self._poller.poll(_milliseconds(timeout_s)))
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._socket not in ready:
            return None
        frames = _receive_parts(self._socket, limit=NUM_FRAMES)
        return None if frames is None else self._session.open(frames)

    def send(self, message: FromLearner, *, epoch: int) -> bool:
        """See `LearnerTransport`."""
        frames = self._session.seal(message, epoch=epoch)
        try:
            self._socket.send_multipart(frames, flags=zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def wake(self) -> None:
        """See `LearnerTransport`."""
        with self._wake_lock, contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
            if not self._context.closed:
                os.write(self._wake_write, b"w")

    def close(self, *, linger_s: float) -> None:
        """See `LearnerTransport`."""
        if self._context.closed:
            return
        self._context.destroy(linger=_milliseconds(linger_s))
        with self._wake_lock:
            os.close(self._wake_read)
            os.close(self._wake_write)


def _socket(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: zmq.SocketType,
    endpoint: str,
    options: dict[zmq.SocketOption, int],
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in (_OPTIONS | options).items():
        socket.setsockopt(option, value)
    if "[" in endpoint:
        socket.setsockopt(zmq.IPV6, 1)
    return socket


def _receive_parts(socket: zmq.Socket[bytes], *, limit: int) -> list[bytes] | None:
    """The parts of one message; of a longer one, one part more than the limit is kept."""
    try:
        parts = [socket.recv(zmq.NOBLOCK)]
    except zmq.Again:
        return None
    while socket.getsockopt(zmq.RCVMORE):
        part = socket.recv(zmq.NOBLOCK)
        if len(parts) <= limit:
            parts.append(part)
    return parts


def _milliseconds(duration_s: float) -> int:
    return max(0, math.ceil(duration_s * 1000))
