"""Both transports within one process: queues instead of sockets.

Messages are still encoded and decoded, so that what works here works over a socket.

Tests: `tests/contracts/test_transport.py`.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from contextlib import suppress

from arena.types import LearnerId
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage, ControllerSession, LearnerSession

MAX_QUEUED = 256
"""Most messages queued for one side: the limit of sockets, too."""

# The mark is compared by identity, because a message without frames would be equal.
_WAKE: list[bytes] = []


class InMemoryHub:
    """Meeting point of a controller and learners in one process. Thread-safe.

    Attributes:
        controller: The controller's transport.
    """

    def __init__(self, *, run: str, epoch: int) -> None:
        self.run = run
        self.inbox: queue.Queue[tuple[bytes, list[bytes]]] = queue.Queue(MAX_QUEUED)
        self.learners: dict[bytes, queue.Queue[list[bytes]]] = {}
        self.controller = InMemoryControllerTransport(self, epoch=epoch)

    def learner(self, learner: LearnerId) -> InMemoryLearnerTransport:
        """Return a connected transport for a learner."""
        return InMemoryLearnerTransport(self, learner=learner)


class InMemoryControllerTransport:
    """Controller's end of a hub."""

    def __init__(self, hub: InMemoryHub, *, epoch: int) -> None:
        self._hub = hub
        self._session = ControllerSession(run=hub.run, epoch=epoch)
        self._is_open = True

    @property
    def endpoint(self) -> str:
        """Name of the hub for people; it cannot be connected to."""
        return f"inproc://{self._hub.run}"

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """See `ControllerTransport`."""
        received: list[tuple[LearnerId, Message]] = []
        try:
            identity, frames = self._hub.inbox.get(timeout=max(timeout_s, 1e-6))
            # The number is bounded, so that learners that send without pause cannot block the
            # controller.
            for _ in range(MAX_QUEUED):
                self._open(identity, frames, received)
                identity, frames = self._hub.inbox.get_nowait()
        except queue.Empty:
            return received
        self._open(identity, frames, received)
        return received

    def _open(
        self, identity: bytes, frames: list[bytes], received: list[tuple[LearnerId, Message]]
    ) -> None:
        opened = self._session.open(identity, frames, now_s=time.monotonic())
        if isinstance(opened, list):
            self._put(identity, opened)
        elif opened is not None:
            # The session delivers only messages whose header names this identity, a valid id.
            received.append((LearnerId(identity.decode()), opened))

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """See `ControllerTransport`."""
        return self._put(learner.encode(), self._session.seal(learner, message))

    def _put(self, identity: bytes, frames: list[bytes]) -> bool:
        outbox = self._hub.learners.get(identity)
        # As over sockets, a controller that was replaced reaches no learner.
        if outbox is None or not self._is_open:
            return False
        try:
            outbox.put_nowait(frames)
        except queue.Full:
            return False
        return True

    def take_bad_messages(self) -> list[BadMessage]:
        """See `ControllerTransport`."""
        return self._session.take_bad_messages()

    @property
    def num_bad(self) -> Mapping[str, int]:
        """See `ControllerTransport`."""
        return self._session.num_bad

    def close(self, *, linger_s: float) -> None:
        """See `ControllerTransport`; messages do not linger here."""
        self._is_open = False


class InMemoryLearnerTransport:
    """Learner's end of a hub."""

    def __init__(self, hub: InMemoryHub, *, learner: LearnerId) -> None:
        self._hub = hub
        self._identity = learner.encode()
        self._session = LearnerSession(run=hub.run, learner=learner)
        self._inbox: queue.Queue[list[bytes]] = queue.Queue(MAX_QUEUED)
        hub.learners[self._identity] = self._inbox

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """See `LearnerTransport`."""
        try:
            frames = self._inbox.get(timeout=max(timeout_s, 1e-6))
        except queue.Empty:
            return None
        return None if frames is _WAKE else self._session.open(frames)

    def send(self, message: FromLearner, *, epoch: int) -> bool:
        """See `LearnerTransport`."""
        return self.send_frames(self._session.seal(message, epoch=epoch))

    def send_frames(self, frames: list[bytes]) -> bool:
        """Send frames that may be no message, to test the other end."""
        try:
            self._hub.inbox.put_nowait((self._identity, frames))
        except queue.Full:
            return False
        return True

    def wake(self) -> None:
        """See `LearnerTransport`."""
        with suppress(queue.Full):  # a full queue wakes the reader anyway
            self._inbox.put_nowait(_WAKE)

    def close(self, *, linger_s: float) -> None:
        """See `LearnerTransport`."""
        # The controller's `send` returns False from now on.
        self._hub.learners.pop(self._identity, None)
