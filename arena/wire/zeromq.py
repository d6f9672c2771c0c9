"""Both transports over ZeroMQ: the controller is a ROUTER, learners are DEALERs.

A learner's socket identity is its id. With keys, connections are encrypted (CURVE), the controller
admits known keys only, and each message carries the name of the key that admitted its connection
(``User-Id``).
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Mapping

import zmq
from zmq.utils.monitor import parse_monitor_message

from arena.errors import AddressInUse, AuthenticatorDead, NotAdmitted
from arena.types import LearnerId
from arena.wire.address import remove_socket
from arena.wire.authenticator import Authenticator
from arena.wire.codec import NUM_FRAMES
from arena.wire.keys import ControllerKeys, LearnerKeys, holder_of, new_learner_key
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage, ControllerSession, LearnerSession
from arena.wire.sockets import (
    ask_for_keys,
    bind,
    check_address,
    key_name,
    milliseconds,
    new_dealer,
    new_router,
    receive_parts,
    send_to,
)

MAX_PORTION = 256
"""Most messages that one ``receive`` takes in, so that a burst cannot hold up the controller."""

MAX_PORTION_S = 0.1
"""Longest time that one ``receive`` takes in: large messages that are almost valid are slow to
refuse.
"""

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
        endpoint = check_address(endpoint, has_keys=keys is not None)
        self._session = ControllerSession(run=run, epoch=epoch, has_keys=keys is not None)
        self._context = zmq.Context()
        # The socket and the authenticator share a context, because inproc endpoints belong to one.
        self._socket = new_router(self._context, endpoint)
        self._keys = keys
        self._authenticator: Authenticator | None = None
        if keys is not None:
            self._authenticator = ask_for_keys(self._context, self._socket, keys)
        try:
            self._endpoint = bind(self._socket, endpoint)
        except AddressInUse:
            self._release(linger_s=0.0)
            raise

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
        if not self._socket.poll(milliseconds(timeout_s)):
            return received
        # Two limits apply: many small messages, or few that are slow to refuse. MAXMSGSIZE only
        # limits the size of a frame.
        end_s = time.monotonic() + MAX_PORTION_S
        for _ in range(MAX_PORTION):
            parts = receive_parts(self._socket, limit=NUM_FRAMES + 1)
            if parts is None:
                break
            key = None
            if self._authenticator is not None:
                key = key_name(parts[-1])
                self._authenticator.unproven.prove(parts[-1])
            # ROUTER puts the sender's identity before its frames.
            identity, *frames = (part.bytes for part in parts)
            now_s = time.monotonic()
            opened = self._session.open(
                identity, frames, now_s=now_s, key=key, is_forgotten=not self._admits(key)
            )
            if isinstance(opened, list):
                self._send(identity, opened)
            elif opened is not None:
                received.append((LearnerId(identity.decode()), opened))
            if now_s >= end_s:
                break
        return received

    def admit(self, name: str) -> str:
        """Make a key pair for one learner process, let it in, and return its key file's text.

        Args:
            name: Name of the key, of no other learner: ``slot3-17``.
        """
        assert self._authenticator is not None, "without keys everybody is let in"
        assert self._keys is not None, "with an authenticator there are keys"
        public, text = new_learner_key(name, controller=self._keys.pair.public_key)
        self._authenticator.admit(public, name)
        return text

    def forget(self, name: str) -> None:
        """Hear the holder of a key no more, whatever connection it still has."""
        assert self._authenticator is not None, "without keys everybody is let in"
        self._authenticator.forget(name)
        self._session.forget(name)

    @property
    def admitted(self) -> Mapping[bytes, str]:
        """Names of the keys that are let in at the moment, by public key (32 bytes)."""
        assert self._authenticator is not None, "without keys everybody is let in"
        return self._authenticator.learners

    def _admits(self, key: str | None) -> bool:
        return self._authenticator is None or key is None or self._authenticator.admits(key)

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """See `ControllerTransport`."""
        return self._send(learner.encode(), self._session.seal(learner, message))

    def _send(self, identity: bytes, frames: list[bytes]) -> bool:
        return send_to(self._socket, identity, frames)

    def take_bad_messages(self) -> list[BadMessage]:
        """See `ControllerTransport`."""
        return self._session.take_bad_messages()

    @property
    def num_bad(self) -> Mapping[str, int]:
        """See `ControllerTransport`; ``key`` counts connections with an unknown key, ``unproven``
        those that were closed before they had shown one.
        """
        strangers = {} if self._authenticator is None else self._authenticator.num_strangers
        return {**self._session.num_bad, **strangers}

    def close(self, *, linger_s: float) -> None:
        """See `ControllerTransport`."""
        if self._context.closed:
            return
        self._release(linger_s=linger_s)
        remove_socket(self._endpoint)

    def _release(self, *, linger_s: float) -> None:
        # The authenticator stops first, because `destroy` also closes its socket, which its thread
        # polls.
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=milliseconds(linger_s))


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
        endpoint = check_address(endpoint, has_keys=keys is not None)
        if keys is not None and holder_of(learner) != keys.name:
            raise ValueError(f"learner {learner} cannot have the key {keys.name}")
        self._session = LearnerSession(run=run, learner=learner)
        self._context = zmq.Context()
        self._socket = new_dealer(self._context, endpoint, identity=learner, keys=keys)
        self._num_failed_handshakes = 0
        self._was_admitted = False
        # The monitor starts before connect, so that the first handshake is seen.
        self._monitor = self._socket.get_monitor_socket(_HANDSHAKES)
        self._socket.connect(endpoint)
        # The lock is reentrant, because a signal handler may interrupt its own thread inside
        # ``wake``.
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
        ready = dict(self._poller.poll(milliseconds(timeout_s)))
        while self._monitor in ready:
            # Handshakes are read first, because they may prove that no message will ever come.
            self._note_handshake()
            ready = dict(self._poller.poll(milliseconds(end_s - time.monotonic())))
        # All pending wake-ups are read at once.
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._socket not in ready:
            return None
        parts = receive_parts(self._socket, limit=NUM_FRAMES)
        return None if parts is None else self._session.open([part.bytes for part in parts])

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
        # The key is right or the peer is slow, so libzmq keeps trying.
        if self._was_admitted or event["value"] == _TIMED_OUT:
            return
        # The controller disconnects a peer without a key or with another controller's. A
        # controller that ends does so, too, so only several failures without any success are
        # conclusive.
        self._num_failed_handshakes += 1
        # If this end notices the mismatch first, libzmq does not reconnect, so one failure is
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
            # After close, the descriptor's number may belong to another file.
            if not self._context.closed:
                os.write(self._wake_write, b"w")

    def close(self, *, linger_s: float) -> None:
        """See `LearnerTransport`."""
        if self._context.closed:
            return
        self._context.destroy(linger=milliseconds(linger_s))
        # Another thread may be writing to the pipe at this moment.
        with self._wake_lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
