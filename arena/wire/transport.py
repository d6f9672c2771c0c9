"""The seam between messages and sockets: the duties of a transport, whatever carries its bytes.

Sending promises nothing: a message arrives once or not at all, and a sender that needs an answer
sends again. A transport treats a peer's bytes as untrusted: a message that does not decode, is of
another run or epoch, or came before, does not reach the caller.

Tests: `tests/contracts/test_transport.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arena.types import LearnerId
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage


class ControllerTransport(Protocol):
    """Controller's end: many learners, one run, one epoch. Owned by one thread.

    The transport itself answers messages of another epoch, run or protocol version with a Refuse:
    the controller has nothing to decide about them.
    """

    @property
    def endpoint(self) -> str:
        """Address that learners connect to."""

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """Return messages that have arrived; wait for the first one.

        May return early and empty. A burst comes in portions. Never raises because of a peer's
        bytes.

        Raises:
            AuthenticatorDead: If learners need keys and the thread that checks them has ended.
        """

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """Send without waiting; False if the learner is absent or does not read."""

    def take_bad_messages(self) -> list[BadMessage]:
        """Return the latest messages dropped since the last call, with reasons."""

    @property
    def num_bad(self) -> Mapping[str, int]:
        """Number of messages dropped so far, by fault."""

    def close(self, *, linger_s: float) -> None:
        """Give messages in flight this long, then release everything. Idempotent."""


class LearnerTransport(Protocol):
    """Learner's end: one controller. Owned by one thread, except ``wake``."""

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """Return the next message; None after the timeout, or early after ``wake``.

        Raises:
            VersionMismatch: If the controller speaks another protocol version.
            NotAdmitted: If the controller does not admit this learner.
        """

    def send(self, message: FromLearner, *, epoch: int) -> bool:
        """Send without waiting; False if there is no controller at the moment.

        Args:
            message: Message to send.
            epoch: Epoch of the controller that it is meant for; 0: any.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """

    def wake(self) -> None:
        """Make ``receive`` return at once. Callable from any thread and from signal handlers."""

    def close(self, *, linger_s: float) -> None:
        """Give messages in flight this long, then release everything. Idempotent."""
