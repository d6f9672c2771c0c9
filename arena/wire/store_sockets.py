"""Both ends of the conversation about a store's files, over ZeroMQ with keys.

Requests and answers are the four frames of `arena.wire.codec` and one with the bytes of a piece. A
peer's bytes are untrusted: what does not decode, is of another run, or speaks for another's key is
counted and dropped. Sending promises nothing: a learner that needs an answer asks again.

Tests: `tests/arena/transfer/test_process.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import zmq

from arena.errors import AddressInUse, AuthenticatorDead, DecodeError, VersionMismatch
from arena.types import LearnerId
from arena.wire.codec import NUM_FRAMES, STORE_ANSWERS, STORE_REQUESTS, decode_as, encode
from arena.wire.keys import ControllerKeys, LearnerKeys, holder_of
from arena.wire.messages import Header
from arena.wire.session import BadKind
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
from arena.wire.store_messages import StoreAnswer, StoreRequest

MAX_PORTION_S = 0.1
"""Longest time that one ``receive`` of a listener takes requests in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """Request that has arrived at a store.

    Attributes:
        learner: Learner that asks.
        number: Number of its request, which the answer names.
        request: The request.
        data: Bytes behind it.
    """

    learner: LearnerId
    number: int
    request: StoreRequest
    data: bytes


class StoreListener:
    """The store's end: a bound ROUTER. Owned by one thread."""

    def __init__(self, endpoint: str, *, run: str, keys: ControllerKeys) -> None:
        """Listen.

        Args:
            endpoint: Address to bind, tcp.
            run: Run's id.
            keys: Controller's keys and the learners that they admit.

        Raises:
            ConfigError: If the endpoint is not a tcp address.
            AddressInUse: If it is in use or cannot be listened on.
        """
        endpoint = check_address(endpoint, has_keys=True)
        self._run = run
        self._context = zmq.Context()
        self._socket = new_router(self._context, endpoint)
        self._authenticator = ask_for_keys(self._context, self._socket, keys)
        self._num_bad: Counter[str] = Counter()
        try:
            self._endpoint = bind(self._socket, endpoint)
        except AddressInUse:
            self.close()
            raise

    @property
    def endpoint(self) -> str:
        """Address that learners connect to; the port is the real one."""
        return self._endpoint

    @property
    def num_bad(self) -> Mapping[str, int]:
        """Number of messages and connections dropped so far, by fault."""
        return {**self._num_bad, **self._authenticator.num_strangers}

    def admit_only(self, learners: Mapping[bytes, str]) -> None:
        """Hear the holders of these keys and no others, whatever connections those still have.

        Args:
            learners: Names by public key (32 bytes).
        """
        self._authenticator.admit_only(learners)

    def receive(
        self, timeout_s: float, *, beside: IO[bytes] | None = None
    ) -> list[ReceivedRequest]:
        """Return requests that have arrived; wait for the first one, and not for more.

        Args:
            timeout_s: Longest wait.
            beside: Pipe that ends the wait, too, as soon as it can be read.

        Raises:
            AuthenticatorDead: If the thread that checks keys has ended.
        """
        if not self._authenticator.is_alive():
            raise AuthenticatorDead("the thread that checks learners' keys has ended")
        received: list[ReceivedRequest] = []
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if beside is not None:
            poller.register(beside, zmq.POLLIN)
        poller.poll(milliseconds(timeout_s))
        end_s = time.monotonic() + MAX_PORTION_S
        # A request has one more frame than a message: the bytes of a piece.
        while parts := receive_parts(self._socket, limit=NUM_FRAMES + 2):
            self._authenticator.unproven.prove(parts[-1])
            opened = self._opened(parts)
            if isinstance(opened, ReceivedRequest):
                received.append(opened)
            else:
                self._num_bad[opened] += 1
            if time.monotonic() >= end_s:
                break
        return received

    def _opened(self, parts: list[zmq.Frame]) -> ReceivedRequest | BadKind:
        # ROUTER puts the sender's identity before its frames.
        identity, *frames, data = (part.bytes for part in parts)
        try:
            header, request = decode_as(frames, STORE_REQUESTS)
        except VersionMismatch:
            return "version"
        except DecodeError:
            return "malformed"
        # The id names the key's holder, and the connection's User-Id names the proved key.
        holder = holder_of(header.learner)
        if header.learner.encode() != identity or key_name(parts[-1]) != holder:
            return "impostor"
        # A connection may have been made before its key was withdrawn.
        if not self._authenticator.admits(holder):
            return "replaced"
        if header.run != self._run:
            return "run"
        return ReceivedRequest(
            learner=header.learner, number=header.sequence, request=request, data=data
        )

    def answer(self, asked: ReceivedRequest, answer: StoreAnswer, data: bytes = b"") -> bool:
        """Answer a request; False if the learner is gone or does not read."""
        header = Header(run=self._run, epoch=0, learner=asked.learner, sequence=asked.number)
        return send_to(self._socket, asked.learner.encode(), [*encode(header, answer), data])

    def close(self) -> None:
        """Release everything."""
        # The authenticator stops first, because `destroy` also closes its socket, which its thread
        # polls.
        self._authenticator.stop()
        self._context.destroy(linger=0)


class StoreConnection:
    """A learner's end: a connected DEALER. Owned by one thread."""

    def __init__(self, endpoint: str, *, run: str, learner: LearnerId, keys: LearnerKeys) -> None:
        """Begin to connect; connecting and reconnecting go on in the background.

        Raises:
            ConfigError: If the endpoint is not a tcp address.
        """
        endpoint = check_address(endpoint, has_keys=True)
        self._run, self._learner = run, learner
        self._num_sent = 0
        self._context = zmq.Context()
        self._socket = new_dealer(self._context, endpoint, identity=learner, keys=keys)
        self._socket.connect(endpoint)

    def ask(self, request: StoreRequest, data: bytes = b"") -> int | None:
        """Send a request, and return its number; None if there is no store at the moment."""
        number = self._num_sent
        header = Header(run=self._run, epoch=0, learner=self._learner, sequence=number)
        try:
            self._socket.send_multipart([*encode(header, request), data], flags=zmq.NOBLOCK)
        except zmq.Again:
            return None
        self._num_sent += 1
        return number

    def receive(self, timeout_s: float) -> tuple[int, StoreAnswer, bytes] | None:
        """Return the next answer with its request's number and its bytes; None after the timeout.

        Raises:
            WireError: If the store speaks another language.
        """
        if not self._socket.poll(milliseconds(timeout_s)):
            return None
        parts = receive_parts(self._socket, limit=NUM_FRAMES + 1)
        if parts is None:
            return None
        *frames, data = (part.bytes for part in parts)
        header, answer = decode_as(frames, STORE_ANSWERS)
        return header.sequence, answer, data

    def close(self) -> None:
        """Release everything."""
        self._context.destroy(linger=0)
