"""What both transports share: headers, sequence numbers, fencing, patience with bad peers.

Pure: frames and times come in as arguments.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from arena.errors import DecodeError, VersionMismatch, WireError
from arena.types import LearnerId
from arena.wire.codec import decode, encode, prefix
from arena.wire.messages import FromController, FromLearner, Header, Hello, Message, Refuse, Welcome

logger = logging.getLogger(__name__)

MAX_PEERS = 4096
MAX_BAD_MESSAGES = 20
"""That a peer may send before nothing of it is read any more."""

ANSWER_EVERY_S = 1.0
WINDOW = 1024
NOBODY = LearnerId("nobody")
"""Whom an answer is for whose peer did not say who it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadMessage:
    """Something that a peer sent and that did not reach the controller.

    Attributes:
        peer: The peer's identity if it is a learner's id, else the first bytes in hexadecimal.
        reason: What is wrong with it.
    """

    peer: str
    reason: str


class SequenceWindow:
    """Tells new sequence numbers from those that were there before.

    Numbers may come in any order; one that is ``WINDOW`` or more below the highest counts as seen.
    """

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit k: highest - k

    def accept(self, sequence: int) -> bool:
        """Whether a number is new; it is not afterwards."""
        ahead = sequence - self._highest
        if ahead > 0:
            shifted = self._seen << ahead if ahead < WINDOW else 0
            self._seen = (shifted | 1) & ((1 << WINDOW) - 1)
            self._highest = sequence
            return True
        if -ahead >= WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True


@dataclass(slots=True)
class _Peer:
    window: SequenceWindow = field(default_factory=SequenceWindow)
    num_bad: int = 0
    is_muted: bool = False
    answered_at_s: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What became of frames: a message for the caller, frames for the peer, or neither."""

    message: Message | None = None
    answer: list[bytes] | None = None


class ControllerSession:
    """The controller's end of all conversations of an epoch."""

    def __init__(self, *, run: str, epoch: int) -> None:
        self._run = run
        self._epoch = epoch
        self._num_sent = 0
        self._peers: OrderedDict[bytes, _Peer] = OrderedDict()
        self._bad: deque[BadMessage] = deque(maxlen=100)
        self._logged_at_s = float("-inf")

    def seal(self, learner: LearnerId, message: FromController) -> list[bytes]:
        """Frames for a learner.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """
        # One count for all learners: forgetting a peer must not begin its numbers anew.
        header = Header(run=self._run, epoch=self._epoch, learner=learner, sequence=self._num_sent)
        frames = encode(header, message)
        self._num_sent += 1
        return frames

    def open(self, identity: bytes, frames: Sequence[bytes], *, now_s: float) -> Opened:
        """Look at what a peer sent. Never raises for what it is."""
        peer = self._peer(identity)
        if peer.is_muted:
            return Opened()
        try:
            header, message = decode(frames)
            reason = self._objection(header, message, identity)
        except VersionMismatch as error:
            return self._turn_away(peer, identity, str(error), now_s=now_s)
        except DecodeError as error:
            peer.num_bad += 1
            if peer.num_bad >= MAX_BAD_MESSAGES:
                peer.is_muted = True
            return self._turn_away(peer, identity, str(error), now_s=now_s)
        if reason is not None:
            return self._turn_away(peer, identity, reason, now_s=now_s)
        if not peer.window.accept(header.sequence):
            return Opened()
        return Opened(message=message)

    def mute(self, learner: LearnerId) -> None:
        """Hear nothing more from a learner."""
        self._peer(learner.encode()).is_muted = True

    def take_bad_messages(self) -> list[BadMessage]:
        """What was dropped since the last call: the latest hundred."""
        bad = list(self._bad)
        self._bad.clear()
        return bad

    def _objection(self, header: Header, message: Message, identity: bytes) -> str | None:
        """Why a well-formed message must not be delivered."""
        said_by = message.learner if isinstance(message, Hello) else header.learner
        if not header.learner.encode() == said_by.encode() == identity:
            raise DecodeError("a learner must speak for itself")
        if not isinstance(message, FromLearner):
            raise DecodeError(f"{type(message).__name__} is a controller's message")
        if header.run != self._run:
            return f"this is the controller of run {self._run}, not of {header.run}"
        # A Hello may be of any epoch: it is how a learner finds the next controller.
        if header.epoch != self._epoch and not isinstance(message, Hello):
            return f"fenced: epoch {header.epoch} is over, this is {self._epoch}"
        return None

    def _turn_away(self, peer: _Peer, identity: bytes, reason: str, *, now_s: float) -> Opened:
        name = _name(identity)
        self._bad.append(BadMessage(peer=name or prefix(identity), reason=reason))
        if now_s - self._logged_at_s >= ANSWER_EVERY_S:
            self._logged_at_s = now_s
            logger.warning("bad message from %s: %s", name or prefix(identity), reason)
        if now_s - peer.answered_at_s < ANSWER_EVERY_S:
            return Opened()
        peer.answered_at_s = now_s
        return Opened(answer=self.seal(name or NOBODY, Refuse(reason=reason)))

    def _peer(self, identity: bytes) -> _Peer:
        peer = self._peers.get(identity)
        if peer is None:
            peer = self._peers[identity] = _Peer()
            if len(self._peers) > MAX_PEERS:
                self._peers.popitem(last=False)
        self._peers.move_to_end(identity)
        return peer


def _name(identity: bytes) -> LearnerId | None:
    """A peer's identity, if it can be put into a header."""
    try:
        name = LearnerId(identity.decode("ascii"))
        encode(Header(run="run", epoch=0, learner=name, sequence=0), Refuse(reason=""))
    except (UnicodeDecodeError, WireError):
        return None
    return name


class LearnerSession:
    """A learner's end of its conversation with the controllers of a run."""

    def __init__(self, *, run: str, learner: LearnerId) -> None:
        self._run = run
        self._learner = learner
        self._num_sent = 0
        self._epoch = 0
        self._window = SequenceWindow()

    def seal(self, message: FromLearner, *, epoch: int) -> list[bytes]:
        """Frames for the controller.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """
        header = Header(run=self._run, epoch=epoch, learner=self._learner, sequence=self._num_sent)
        frames = encode(header, message)
        self._num_sent += 1
        return frames

    def open(self, frames: Sequence[bytes]) -> tuple[Header, Message] | None:
        """A message from the controller; None for anything else, and for repetitions.

        Raises:
            VersionMismatch: If the controller speaks another protocol version.
        """
        try:
            header, message = decode(frames)
        except DecodeError as error:
            logger.warning("bad message from the controller: %s", error)
            return None
        if not isinstance(message, FromController):
            return None
        if isinstance(message, Refuse):
            return header, message  # also of another run: the address was wrong
        if header.run != self._run or header.learner != self._learner:
            return None
        if isinstance(message, Welcome) and header.epoch > self._epoch:
            self._epoch = header.epoch
            self._window = SequenceWindow()
        if header.epoch != self._epoch or not self._window.accept(header.sequence):
            return None
        return header, message
