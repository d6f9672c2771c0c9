"""Both transports over ZeroMQ: the controller is a ROUTER, learners are DEALERs.

A learner's socket identity is its id. With keys, connections are encrypted (CURVE), the controller
admits known keys only, and each message carries the name of the key that admitted its connection
(``User-Id``).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from collections.abc import Mapping

import zmq
from zmq.utils.monitor import parse_monitor_message

from arena.errors import AddressInUse, AuthenticatorDead, ConfigError, NotAdmitted
from arena.types import LearnerId
from arena.wire.address import check_endpoint, owner_of_port, remove_socket
from arena.wire.authenticator import DOMAIN, Authenticator
from arena.wire.codec import MAX_FRAME_BYTES, NUM_FRAMES
from arena.wire.keys import ControllerKeys, LearnerKeys, holder_of
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage, ControllerSession, LearnerSession

MAX_QUEUED = 256
MAX_PORTION = 256
"""Most messages that one ``receive`` takes in, so that a burst cannot hold up the controller."""

MAX_PORTION_S = 0.1
"""Longest time that one ``receive`` takes in: large messages that are almost valid are slow to
refuse.
"""

# Receive limits apply per connection, before any byte reaches Python.
_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.LINGER: 0,
    zmq.MAXMSGSIZE: MAX_FRAME_BYTES,
    zmq.SNDHWM: MAX_QUEUED,
    zmq.RCVHWM: MAX_QUEUED,
    zmq.HANDSHAKE_IVL: 5000,
    # These find half-open connections only, as a stuck Python process answers them. Heartbeat
    # messages decide about liveness.
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
}
# Mandatory: a send to an absent learner raises instead of being dropped silently.
_ROUTER_OPTIONS: dict[zmq.SocketOption, int] = {zmq.ROUTER_MANDATORY: 1}
_DEALER_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.IMMEDIATE: 1,  # nothing is queued for a controller that is away, to reach the next one
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 5000,
}


_HANDSHAKES = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
)
_NO_SUCH_KEY = 400
_TIMED_OUT = zmq.EAGAIN
"""Event value of a handshake that timed out: a slow or stopped peer, which says nothing
about keys.
"""

MAX_FAILED_HANDSHAKES = 5


class ZmqControllerTransport:
    """Bound ROUTER. Owned by one thread."""

    def __init__(
        self, endpoint: str, *, run: str, epoch: int, keys: ControllerKeys | None = None
    ) -> None:
        """Listen.

        Args:
            endpoint: Address to bind.
            run: Run's id.
            epoch: Controller's epoch.
            keys: Controller's keys and the learners that they admit; for tcp only. Without keys,
                only addresses of this machine are allowed, and every process that reaches the
                socket is admitted.

        Raises:
            ConfigError: If the endpoint could be reached from elsewhere.
            AddressInUse: If the address is in use or cannot be listened on.
        """
        endpoint = _checked(endpoint, has_keys=keys is not None)
        self._session = ControllerSession(run=run, epoch=epoch, has_keys=keys is not None)
        self._context = zmq.Context()
        # The socket and the authenticator share a context, because inproc endpoints belong to one.
        self._socket = _socket(self._context, zmq.ROUTER, endpoint, _ROUTER_OPTIONS)
        self._authenticator: Authenticator | None = None
        if keys is not None:
            # Before bind: until an authenticator is bound, libzmq admits every connection.
            self._authenticator = Authenticator(self._context, learners=keys.learners)
            self._socket.setsockopt(zmq.CURVE_SERVER, 1)
            # All options before bind: libzmq applies them to later connections only.
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self._socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._release(linger_s=0.0)
            raise AddressInUse(_cannot_listen(endpoint, error)) from error
        # The system has chosen the port by now, if it was *.
        self._endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def endpoint(self) -> str:
        """Address that learners connect to; the port is the real one."""
        return self._endpoint

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """See `ControllerTransport`."""
        received: list[tuple[LearnerId, Message]] = []
        if self._authenticator is not None and not self._authenticator.is_alive():
            raise AuthenticatorDead(
                "the thread that checks learners' keys has ended, so nobody can be let in any "
                "more: the controller ends, --resume goes on"
            )
        if not self._socket.poll(_milliseconds(timeout_s)):
            return received
        # Parts are read one by one: MAXMSGSIZE limits the size of a frame, not their number.
        # Two limits: many small messages, or few that are slow to refuse.
        end_s = time.monotonic() + MAX_PORTION_S
        for _ in range(MAX_PORTION):
            parts = _receive_parts(self._socket, limit=NUM_FRAMES + 1)
            if parts is None:
                break
            key = None if self._authenticator is None else _key_name(parts[-1])
            # ROUTER puts the sender's identity before its frames.
            identity, *frames = map(_bytes, parts)
            now_s = time.monotonic()
            opened = self._session.open(identity, frames, now_s=now_s, key=key)
            if opened.answer is not None:
                self._send(identity, opened.answer)
            if opened.message is not None:
                received.append((LearnerId(identity.decode()), opened.message))
            if now_s >= end_s:
                break
        return received

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """See `ControllerTransport`."""
        return self._send(learner.encode(), self._session.seal(learner, message))

    def _send(self, identity: bytes, frames: list[bytes]) -> bool:
        try:
            self._socket.send_multipart([identity, *frames], flags=zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # The learner is gone, or its queue is full: both are "not delivered" for the caller.
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def take_bad_messages(self) -> list[BadMessage]:
        """See `ControllerTransport`."""
        return self._session.take_bad_messages()

    @property
    def num_bad(self) -> Mapping[str, int]:
        """See `ControllerTransport`; ``key`` counts connections with an unknown key."""
        refused = 0 if self._authenticator is None else self._authenticator.num_refused
        return {**self._session.num_bad, **({"key": refused} if refused else {})}

    def close(self, *, linger_s: float) -> None:
        """See `ControllerTransport`."""
        if self._context.closed:
            return
        self._release(linger_s=linger_s)
        remove_socket(self._endpoint)

    def _release(self, *, linger_s: float) -> None:
        # First: destroy closes the authenticator's socket, too, which its thread polls.
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=_milliseconds(linger_s))


class ZmqLearnerTransport:
    """Connected DEALER. Owned by one thread, except ``wake``."""

    def __init__(
        self, endpoint: str, *, run: str, learner: LearnerId, keys: LearnerKeys | None = None
    ) -> None:
        """Begin to connect; connecting and reconnecting go on in the background.

        Args:
            endpoint: Controller's address.
            run: Run's id.
            learner: Learner's id; with keys it begins with the key's name.
            keys: Learner's keys and the controller's public key; for tcp only.

        Raises:
            ConfigError: If the endpoint is not on this machine and there are no keys.
        """
        endpoint = _checked(endpoint, has_keys=keys is not None)
        if keys is not None and holder_of(learner) != keys.name:
            raise ValueError(f"learner {learner} cannot have the key {keys.name}")
        self._session = LearnerSession(run=run, learner=learner)
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.DEALER, endpoint, _DEALER_OPTIONS)
        # New for each process: ROUTER silently ignores a second peer with an existing identity.
        self._socket.setsockopt(zmq.ROUTING_ID, learner.encode())
        if keys is not None:
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, keys.controller)
        self._num_failed_handshakes = 0
        self._was_admitted = False
        # Before connect, so that the first handshake is seen.
        self._monitor = self._socket.get_monitor_socket(_HANDSHAKES)
        self._socket.connect(endpoint)
        # Reentrant: a signal handler may interrupt its own thread inside ``wake``.
        self._wake_lock = threading.RLock()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._wake_read, select.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """See `LearnerTransport`."""
        end_s = time.monotonic() + timeout_s
        ready = dict(self._poller.poll(_milliseconds(timeout_s)))
        while self._monitor in ready:
            # Handshakes first: they may prove that no message will ever come.
            self._note_handshake()
            ready = dict(self._poller.poll(_milliseconds(end_s - time.monotonic())))
        # All pending wake-ups are read at once.
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._socket not in ready:
            return None
        parts = _receive_parts(self._socket, limit=NUM_FRAMES)
        return None if parts is None else self._session.open([_bytes(part) for part in parts])

    def _note_handshake(self) -> None:
        """Read one event of a handshake.

        Raises:
            NotAdmitted: If trying again cannot help.
        """
        event = parse_monitor_message(self._monitor.recv_multipart())
        if event["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._was_admitted = True
            return
        if event["event"] == zmq.Event.HANDSHAKE_FAILED_AUTH and event["value"] == _NO_SUCH_KEY:
            raise NotAdmitted(
                "the controller does not know this learner's key: it is of another run, or was "
                "revoked; the keys that `arena launch` made are in the run's directory keys/"
            )
        # Its key is right, or the peer is slow: libzmq goes on trying.
        if self._was_admitted or event["value"] == _TIMED_OUT:
            return
        # The controller hangs up on a peer without a key, or with another controller's. So does one
        # that ends: only several failures without any success before are conclusive.
        self._num_failed_handshakes += 1
        # When this end notices the mismatch first, libzmq does not reconnect: one failure is
        # conclusive.
        is_mismatch = event["event"] == zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        if is_mismatch or self._num_failed_handshakes >= MAX_FAILED_HANDSHAKES:
            raise NotAdmitted(
                f"the peer there has hung up, {self._num_failed_handshakes} times: it is no "
                "controller, or one that wants a key (--keys), or the key file is of another run"
            )

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
        with self._wake_lock, contextlib.suppress(BlockingIOError):  # full: the reader wakes anyway
            # After close the number of the descriptor may be another file's.
            if not self._context.closed:
                os.write(self._wake_write, b"w")

    def close(self, *, linger_s: float) -> None:
        """See `LearnerTransport`."""
        if self._context.closed:
            return
        self._context.destroy(linger=_milliseconds(linger_s))
        # Another thread may be writing to the pipe at this moment.
        with self._wake_lock:
            os.close(self._wake_read)
            os.close(self._wake_write)


def _checked(endpoint: str, *, has_keys: bool) -> str:
    checked = check_endpoint(endpoint, has_keys=has_keys)
    # A Unix socket is protected by the mode of its directory.
    if has_keys and not checked.startswith("tcp://"):
        raise ConfigError(f"keys are for tcp endpoints, {endpoint!r} needs none")
    return checked


def _cannot_listen(endpoint: str, error: zmq.ZMQError) -> str:
    reason = f"cannot listen on {endpoint}: {zmq.strerror(error.errno or 0)}"
    owner = owner_of_port(endpoint) if error.errno == zmq.EADDRINUSE else ""
    return f"{reason} by {owner}" if owner else reason


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


def _receive_parts(socket: zmq.Socket[bytes], *, limit: int) -> list[zmq.Frame] | None:
    """Return the parts of one message; of a longer one, one part more than the limit is kept."""
    try:
        parts = [socket.recv(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return None
    while socket.getsockopt(zmq.RCVMORE):
        # Frames beyond the limit are read and dropped, to leave the socket at a message's border.
        part = socket.recv(zmq.NOBLOCK, copy=False)
        if len(parts) <= limit:
            parts.append(part)
    return parts


def _bytes(part: zmq.Frame) -> bytes:
    return part.bytes


def _key_name(part: zmq.Frame) -> str | None:
    """Return the name under which a part's connection was admitted; None without keys."""
    try:
        return str(part.get("User-Id"))
    except zmq.ZMQError:
        return None


def _milliseconds(duration_s: float) -> int:
    # Up, as 0 would poll in a busy loop for the last millisecond; a negative timeout is endless.
    return max(0, math.ceil(duration_s * 1000))
