"""The seam between messages and sockets: what a transport does, whatever carries its bytes.

Sending promises nothing: a message arrives once or not at all, and whoever needs an answer sends
again. A transport never takes a peer's bytes for more than bytes: what does not decode, is of
another run or another epoch, or came before, does not reach the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arena.types import LearnerId
from arena.wire.messages import FromController, FromLearner, Header, Message
from arena.wire.session import BadMessage


class ControllerTransport(Protocol):
    """The controller's end: many learners, one run, one epoch. Owned by one thread.

    Peers whose messages are of another epoch, run or protocol version are answered with a Refuse by
    the transport itself: the controller has nothing to decide about them.
    """

    @property
    def endpoint(self) -> str:
        """Where learners connect to."""
        ...

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """Messages that have arrived; waits for the first one. Never raises for what peers send.

        May return early and empty. A burst comes in portions.

        Raises:
            AuthenticatorDead: If learners need keys and nobody checks them any more.
        """
        ...

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """Send without waiting; False if the learner is not there or does not read."""
        ...

    def take_bad_messages(self) -> list[BadMessage]:
        """What was dropped since the last call (the latest of it) and why."""
        ...

    @property
    def num_bad(self) -> Mapping[str, int]:
        """How many messages were dropped so far, by what was wrong with them."""
        ...

    def disconnect(self, learner: LearnerId) -> None:
        """Hear nothing more from a learner: what it still sends is dropped."""
        ...

    def close(self, *, linger_s: float) -> None:
        """Give messages on their way so long, then release everything. Idempotent."""
        ...


class LearnerTransport(Protocol):
    """A learner's end: one controller. Owned by one thread, but for ``wake``."""

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """The next message; None after the timeout, or early after ``wake``.

        Raises:
            VersionMismatch: If the controller speaks another protocol version.
            NotAdmitted: If the controller does not let this learner in.
        """
        ...

    def send(self, message: FromLearner, *, epoch: int) -> bool:
        """Send without waiting; False if there is no controller now.

        Args:
            message: What to say.
            epoch: The epoch of the controller that it is meant for; 0: any.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """
        ...

    def wake(self) -> None:
        """Let ``receive`` return at once. From any thread, also from a signal handler."""
        ...

    def close(self, *, linger_s: float) -> None:
        """Give messages on their way so long, then release everything. Idempotent."""
        ...
