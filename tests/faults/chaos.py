"""A proxy between learners and a controller that loses, repeats, holds back and cuts off.

What becomes of a message follows from the plan's seed, its direction, its peer and its number, and
from nothing else: no clock. So a failure is seen again with the same seed, whatever the machine
does meanwhile; the log says what became of every message.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import zmq

from arena.errors import DecodeError
from arena.wire.codec import decode

POLL_MS = 20
Direction = Literal["up", "down"]
"""To the controller, or to a learner."""

Frames = list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A peer that is cut off: from one of its messages on, until it has tried to send some more.

    Attributes:
        peer: Its number, in order of coming.
        first: The first of its messages that does not get through, from 0.
        length: How many do not. They arrive late, when it is over, and so does what was for it.
    """

    peer: int
    first: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What goes wrong.

    Attributes:
        seed: Of everything by chance.
        drop: Share of messages that are lost.
        duplicate: Share that come twice.
        hold: Share that are held back until others have passed: one (swapped), or more.
        max_hold: How many others at most.
        partitions: Peers that are cut off for a while.
    """

    seed: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    hold: float = 0.0
    max_hold: int = 4
    partitions: tuple[Partition, ...] = ()

    def fate(self, direction: Direction, peer: int, index: int) -> tuple[int, int]:
        """How often a message arrives, and after how many others."""
        rng = random.Random(f"{self.seed} {direction} {peer} {index}")
        lost, twice, late = rng.random(), rng.random(), rng.random()
        copies = 0 if lost < self.drop else 2 if twice < self.duplicate else 1
        return copies, rng.randint(1, self.max_hold) if late < self.hold else 0


@dataclass(slots=True)
class Link:
    """One direction of one peer.

    Attributes:
        plan: What goes wrong.
        direction: Which.
        peer: Its number.
        num_seen: Messages that were sent.
    """

    plan: Plan
    direction: Direction
    peer: int
    num_seen: int = 0
    _held: list[tuple[int, Frames]] = field(default_factory=list)
    _cut_off: list[Frames] = field(default_factory=list)

    def take(self, frames: Frames, *, is_cut: bool) -> tuple[str, list[Frames]]:
        """What becomes of a message, in a word, and which messages arrive now, in order."""
        index, self.num_seen = self.num_seen, self.num_seen + 1
        if is_cut:
            self._cut_off.append(frames)
            return "cut", []
        copies, later = self.plan.fate(self.direction, self.peer, index)
        arriving = self.heal()
        if later:
            self._held += [(index + later, frames)] * copies
        else:
            arriving += [frames] * copies
        arriving += [held for due, held in self._held if due <= index]
        self._held = [(due, held) for due, held in self._held if due > index]
        return "lost" if not copies else "held" if later else f"sent {copies}", arriving

    def heal(self) -> list[Frames]:
        """What was cut off, once it is not any more."""
        late, self._cut_off = self._cut_off, []
        return late


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A line of the log.

    Attributes:
        direction: Which way.
        peer: Whose.
        index: Of the message.
        kind: The message's class.
        text: The message, for refusals.
        fate: What became of it.
    """

    direction: Direction
    peer: int
    index: int
    kind: str
    text: str
    fate: str


@dataclass(slots=True)
class _Peer:
    number: int
    socket: zmq.Socket[bytes]
    up: Link
    down: Link


class ChaosProxy:
    """A thread between the two: a ROUTER for learners, for each of them a DEALER to the controller.

    Attributes:
        endpoint: Where learners connect to.
        log: What became of every message. To be read when the proxy is closed.
    """

    def __init__(self, plan: Plan, *, controller: str) -> None:
        self.log: list[Noted] = []
        self._plan = plan
        self._controller = controller
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self._front.bind("tcp://127.0.0.1:*")
        self.endpoint = self._front.getsockopt_string(zmq.LAST_ENDPOINT)
        self._peers: dict[bytes, _Peer] = {}
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closed.set()
        self._thread.join()
        self._context.destroy(linger=0)
        if error is not None:
            error.add_note(f"{self._plan}: {dict(self.fates())}")

    def fates(self) -> Mapping[str, int]:
        """How often each thing happened."""
        return Counter(f"{noted.direction} {noted.fate}" for noted in self.log)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        while not self._is_closed.is_set():
            ready = dict(poller.poll(POLL_MS))
            if self._front in ready:
                identity, *frames = self._front.recv_multipart()
                if identity not in self._peers:
                    self._peers[identity] = self._welcome(identity)
                    poller.register(self._peers[identity].socket, zmq.POLLIN)
                self._pass_up(self._peers[identity], identity, frames)
            for identity, peer in self._peers.items():
                if peer.socket in ready:
                    self._pass_down(peer, identity, peer.socket.recv_multipart())

    def _welcome(self, identity: bytes) -> _Peer:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.ROUTING_ID, identity)
        socket.connect(self._controller)
        number = len(self._peers)
        up, down = Link(self._plan, "up", number), Link(self._plan, "down", number)
        return _Peer(number, socket, up, down)

    def _pass_up(self, peer: _Peer, identity: bytes, frames: Frames) -> None:
        was_cut = self._is_cut(peer, peer.up.num_seen - 1)
        is_cut = self._is_cut(peer, peer.up.num_seen)
        if was_cut and not is_cut:
            for late in peer.down.heal():
                self._front.send_multipart([identity, *late])
        fate, arriving = peer.up.take(frames, is_cut=is_cut)
        self._note(peer.up, frames, fate)
        for message in arriving:
            peer.socket.send_multipart(message)

    def _pass_down(self, peer: _Peer, identity: bytes, frames: Frames) -> None:
        is_cut = self._is_cut(peer, peer.up.num_seen - 1)
        fate, arriving = peer.down.take(frames, is_cut=is_cut)
        self._note(peer.down, frames, fate)
        for message in arriving:
            self._front.send_multipart([identity, *message])

    def _is_cut(self, peer: _Peer, index: int) -> bool:
        return any(
            cut.peer == peer.number and cut.first <= index < cut.first + cut.length
            for cut in self._plan.partitions
        )

    def _note(self, link: Link, frames: Frames, fate: str) -> None:
        try:
            _, message = decode(frames)
        except DecodeError as error:
            kind, text = "no message", str(error)
        else:
            kind, text = type(message).__name__, str(getattr(message, "reason", ""))
        noted = Noted(
            direction=link.direction,
            peer=link.peer,
            index=link.num_seen - 1,
            kind=kind,
            text=text,
            fate=fate,
        )
        self.log.append(noted)
