"""Rules that all transports share: headers, sequence numbers, fencing, patience with bad peers.

Pure: frames and times come in as arguments.

No message of a welcomed learner is delivered twice, however many strangers connect.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from arena.codec import prefix
from arena.errors import DecodeError, VersionMismatch, WireError
from arena.processes.paced_log import OneASecond
from arena.types import LearnerId
from arena.wire.codec import decode, encode
from arena.wire.keys import holder_of
from arena.wire.messages import FromController, FromLearner, Header, Hello, Message, Refuse, Welcome

logger = logging.getLogger(__name__)
# A flood of bad messages must not fill the log or the disk.
logger.addFilter(OneASecond())

MAX_PEERS = 4096
"""Most strangers kept; the longest silent is forgotten first."""

MAX_LEARNERS = 16384
"""Most welcomed learners kept."""

MAX_BAD_MESSAGES = 20
"""Number of bad messages after which a peer is no longer read."""

BadKind = Literal[
    "malformed", "impostor", "version", "run", "fenced", "replaced", "repeated", "muted"
]
"""Reasons to drop a message."""

_BLAMED: frozenset[BadKind] = frozenset({"malformed", "impostor"})
"""Kinds that no learner of this release ever sends."""

ANSWER_EVERY_S = 1.0
WINDOW = 1024
NOBODY = LearnerId("nobody")
"""Addressee of an answer to a peer that did not identify itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadMessage:
    """Message that was dropped before it reached the controller.

    Attributes:
        peer: Peer's identity if it is a learner's id, else the first bytes in hexadecimal.
        kind: Kind of fault.
        reason: Description of the fault.
    """

    peer: str
    kind: BadKind
    reason: str


class SequenceWindow:
    """Filter of sequence numbers that were seen before.

    Numbers may come in any order; one that is ``WINDOW`` or more below the highest counts as seen.
    """

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit k: highest - k

    def accept(self, sequence: int) -> bool:
        """Return whether a number is new, and mark it as seen."""
        ahead = sequence - self._highest
        # Bit k of _seen is the number highest - k, so a new highest one shifts all others up.
        if ahead > 0:
            # Sequence numbers reach 2**63, and shifting by a crafted one would take all memory.
            shifted = self._seen << ahead if ahead < WINDOW else 0
            self._seen = (shifted | 1) & ((1 << WINDOW) - 1)
            self._highest = sequence
            return True
        # -ahead is the bit of this number; numbers beyond the window cannot be distinguished from
        # old ones.
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


class ControllerSession:
    """Controller's end of all conversations of an epoch."""

    def __init__(self, *, run: str, epoch: int, has_keys: bool = False) -> None:
        """Begin.

        Args:
            run: Run's id.
            epoch: Controller's epoch.
            has_keys: Whether each peer has proved its key; it may speak only for the key's learner.
        """
        self._run = run
        self._epoch = epoch
        self._has_keys = has_keys
        self._num_sent = 0
        # Two maps are used, so that any number of strangers cannot evict a learner's sequence
        # window, whose messages could then be replayed.
        self._strangers: OrderedDict[bytes, _Peer] = OrderedDict()
        self._learners: OrderedDict[bytes, _Peer] = OrderedDict()
        self._holders: dict[str, bytes] = {}
        self._bad: deque[BadMessage] = deque(maxlen=100)
        self._num_bad: Counter[str] = Counter()

    @property
    def num_bad(self) -> Mapping[str, int]:
        """Number of messages dropped so far, by fault."""
        return self._num_bad

    def seal(self, learner: LearnerId, message: FromController) -> list[bytes]:
        """Return the frames of a message to a learner; a Welcome also admits it as a learner.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """
        # All learners share one counter, so that a forgotten peer that returns never sees old
        # numbers again.
        header = Header(run=self._run, epoch=self._epoch, learner=learner, sequence=self._num_sent)
        frames = encode(header, message)
        self._num_sent += 1
        if isinstance(message, Welcome):
            self._admit(learner)
        return frames

    def open(
        self,
        identity: bytes,
        frames: Sequence[bytes],
        *,
        now_s: float,
        key: str | None = None,
        is_forgotten: bool = False,
    ) -> Message | list[bytes] | None:
        """Check the frames of a peer. Never raises because of their content.

        Args:
            identity: Identity of the peer's socket.
            frames: Received frames.
            now_s: Time of receipt, to limit answers.
            key: Name of the key that the peer has proved. None: it has none.
            is_forgotten: Whether that key is let in no more.

        Returns:
            A message for the caller, frames to answer the peer with, or neither.
        """
        peer = self._peer(identity)
        # Messages of a muted peer are not even decoded, which saves the time.
        if peer.is_muted:
            self._num_bad["muted"] += 1
            return None
        try:
            header, message = decode(frames)
        except VersionMismatch as error:
            reason = _upgrade(learner=error.theirs, controller=error.ours)
            return self._turn_away(peer, identity, "version", reason, now_s=now_s)
        except DecodeError as error:
            return self._turn_away(peer, identity, "malformed", str(error), now_s=now_s)
        objection = self._objection(header, message, identity, key)
        # A connection may have been made before its key was withdrawn.
        if objection is None and is_forgotten:
            objection = "replaced", f"the key {key} is valid no more"
        if objection is not None:
            return self._turn_away(peer, identity, *objection, now_s=now_s)
        # The number is checked last, because a refused message must not use it up.
        if not peer.window.accept(header.sequence):
            self._num_bad["repeated"] += 1
            return None
        return message

    def forget(self, name: str) -> None:
        """Drop what is kept of the learner that holds a key."""
        self._learners.pop(self._holders.pop(name, b""), None)

    def take_bad_messages(self) -> list[BadMessage]:
        """Return the latest hundred messages dropped since the last call."""
        bad = list(self._bad)
        self._bad.clear()
        return bad

    def _objection(
        self, header: Header, message: Message, identity: bytes, key: str | None
    ) -> tuple[BadKind, str] | None:
        """Return why a well-formed message must not be delivered."""
        said_by = message.learner if isinstance(message, Hello) else header.learner
        # ZeroMQ routes by the socket's identity, so all three names must agree.
        if not header.learner.encode() == said_by.encode() == identity:
            return "impostor", "a learner must speak for itself"
        # The id names the key's holder, and the connection's User-Id names the proved key.
        holder = holder_of(said_by)
        if self._has_keys and key != holder:
            return "impostor", f"the key {key or 'none'} does not speak for learner {said_by}"
        # The direction is checked here, because a controller's messages decode like any others.
        if not isinstance(message, FromLearner):
            return "impostor", f"{type(message).__name__} is a controller's message"
        if header.run != self._run:
            return "run", f"this is the controller of run {self._run}, not of {header.run}"
        if isinstance(message, Hello):
            # Hello is valid in any epoch, because a learner finds the next controller by it.
            return None
        # Leases are valid for one epoch, so a message of another epoch could count work twice.
        if header.epoch != self._epoch:
            return "fenced", f"fenced: epoch {header.epoch} is over, this is {self._epoch}"
        if self._has_keys and self._holders.get(holder, identity) != identity:
            return "replaced", f"another process has the key {key} now"
        return None

    def _turn_away(
        self, peer: _Peer, identity: bytes, kind: BadKind, reason: str, *, now_s: float
    ) -> list[bytes] | None:
        self._num_bad[kind] += 1
        # Honest learners may be outdated, of another run or fenced, and must not be muted for
        # that.
        if kind in _BLAMED:
            peer.num_bad += 1
            peer.is_muted = peer.num_bad >= MAX_BAD_MESSAGES
        name = _name(identity)
        shown = name or prefix(identity)
        self._bad.append(BadMessage(peer=shown, kind=kind, reason=reason))
        logger.warning("bad message from %s: %s", shown, reason)
        # Answering each message would let a stranger make the controller send as much as the
        # stranger does.
        if now_s - peer.answered_at_s < ANSWER_EVERY_S:
            return None
        peer.answered_at_s = now_s
        # Two processes with one key would replace each other for ever if both came again.
        refuse = Refuse(reason=reason, again=kind == "fenced")
        return self.seal(name or NOBODY, refuse)

    def _peer(self, identity: bytes) -> _Peer:
        if identity in self._learners:
            self._learners.move_to_end(identity)
            return self._learners[identity]
        return _remember(self._strangers, identity, limit=MAX_PEERS)

    def _admit(self, learner: LearnerId) -> None:
        """Admit a welcomed learner; with keys, the latest process of a key replaces the
        one before.
        """
        identity = learner.encode()
        if self._has_keys:
            former = self._holders.get(holder_of(learner), identity)
            self._holders[holder_of(learner)] = identity
            # The former process of a key must not keep an unchecked sequence window.
            if former != identity:
                self._learners.pop(former, None)
        if identity not in self._learners:
            # The window moves with the peer, so that numbers seen as a stranger stay seen.
            peer = _remember(self._strangers, identity, limit=MAX_PEERS)
            del self._strangers[identity]
            _remember(self._learners, identity, limit=MAX_LEARNERS, peer=peer)


def _remember(
    peers: OrderedDict[bytes, _Peer], identity: bytes, *, limit: int, peer: _Peer | None = None
) -> _Peer:
    """Find or insert a peer as the latest; beyond the limit the longest silent one is dropped."""
    known = peers.setdefault(identity, peer or _Peer())
    peers.move_to_end(identity)
    if len(peers) > limit:
        peers.popitem(last=False)
    return known


def _upgrade(*, learner: int, controller: int) -> str:
    """Return the advice for two sides of different versions."""
    older = "learner" if learner < controller else "controller"
    return (
        f"the learner speaks protocol version {learner}, the controller {controller}: "
        f"upgrade arena-league where the {older} runs"
    )


def _name(identity: bytes) -> LearnerId | None:
    """Return a peer's identity as an id, if it can be put into a header."""
    try:
        name = LearnerId(identity.decode("ascii"))
        encode(Header(run="run", epoch=0, learner=name, sequence=0), Refuse(reason=""))
    except (UnicodeDecodeError, WireError):
        return None
    return name


class LearnerSession:
    """Learner's end of its conversation with the controllers of a run."""

    def __init__(self, *, run: str, learner: LearnerId) -> None:
        self._run = run
        self._learner = learner
        self._num_sent = 0
        self._epoch = 0
        self._window = SequenceWindow()

    def seal(self, message: FromLearner, *, epoch: int) -> list[bytes]:
        """Return the frames of a message to the controller.

        Raises:
            WireError: If the message breaks a rule of the wire.
        """
        header = Header(run=self._run, epoch=epoch, learner=self._learner, sequence=self._num_sent)
        frames = encode(header, message)
        self._num_sent += 1
        return frames

    def open(self, frames: Sequence[bytes]) -> tuple[Header, Message] | None:
        """Return a message from the controller; None for anything else, and for repetitions.

        Raises:
            VersionMismatch: If the controller speaks another protocol version.
        """
        try:
            header, message = decode(frames)
        except VersionMismatch as error:
            reason = _upgrade(learner=error.ours, controller=error.theirs)
            raise VersionMismatch(reason, theirs=error.theirs, ours=error.ours) from None
        except DecodeError as error:
            logger.warning("bad message from the controller: %s", error)
            return None
        if not isinstance(message, FromController):
            return None
        if isinstance(message, Refuse):
            # A refusal from another run counts, too, because it shows that the learner's address
            # is wrong.
            return header, message
        if header.run != self._run or header.learner != self._learner:
            return None
        # A new controller counts its messages from 0 again.
        if isinstance(message, Welcome) and header.epoch > self._epoch:
            self._epoch = header.epoch
            self._window = SequenceWindow()
        # The epoch is 0 before the first Welcome, so no other message is accepted until then.
        if header.epoch != self._epoch or not self._window.accept(header.sequence):
            return None
        return header, message
