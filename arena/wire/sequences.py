"""Which messages of a sender were there before: in-memory or from a socket, each counts once."""

from __future__ import annotations

from arena.types import LearnerId
from arena.wire.messages import Header, Hello, Message, Refuse

FENCED = "fenced: the controller is of epoch {ours}, the message of epoch {theirs}"
MAX_SENDERS = 4096


class Gate:
    """Lets a message of this run and epoch through once. Owned by one thread."""

    def __init__(self, *, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        self._last: dict[LearnerId, int] = {}

    def admit(self, header: Header, message: Message) -> str | Refuse | None:
        """Say what is wrong with a message: to be dropped (text) or answered; None: nothing."""
        if header.run != self.run:
            return "a message of another run"
        if not isinstance(message, Hello) and header.epoch != self.epoch:
            return Refuse(reason=FENCED.format(ours=self.epoch, theirs=header.epoch))
        if header.sequence <= self._last.get(header.learner, -1):
            return "a message that was there before"
        if header.learner not in self._last and len(self._last) >= MAX_SENDERS:
            self._last.pop(next(iter(self._last)))
        self._last[header.learner] = header.sequence
        return None
