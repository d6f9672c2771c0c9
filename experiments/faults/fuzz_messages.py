"""Messages that no learner would send, from a seed: for `fuzz`.

Each is a list of frames. The sender knows all that a hostile learner of the run would know: the
run's id, its epoch, the digests, who else is there and what that one is working on. It has never
been welcomed, so whatever it says must change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
from msgspec.structs import replace

from arena.types import AssignmentId, Digest, LearnerId
from arena.wire.codec import MAX_FRAME_BYTES, encode
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Failed,
    Finished,
    Goodbye,
    Header,
    Heartbeat,
    Hello,
    Message,
    Stop,
    Welcome,
)

Frames = list[bytes]

WRONG_DIGEST = Digest("0" * 64)
LARGE_EVERY = 200
"""One message in so many is large: a million of those would only show how fast bytes are copied."""

_SPECIAL = (
    b"\xc1",
    b"\xdd\xff\xff\xff\xff",  # a list that claims 4 billion items
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xdb\xff\xff\xff\xff",  # text
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xc9\xff\xff\xff\xff\x01",  # an extension
    b"\xd4\x01\x00",
    b"\xd6\xff\0\0\0\0",  # a timestamp
    b"\xa4\xff\xfe\xfd\xfc",  # no UTF-8
    b"\x82\xa6reason\xa1a\xa6reason\xa1b",  # a key twice
    b"\x81\x01\x02",
    b"\x81\xa6reason\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # not a number
    b"\xc2" * 100,
    b"",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Facts about a run that a peer can know.

    Attributes:
        run: Its id.
        epoch: Epoch of the controller.
        learner: Learner that works.
        assignment_id: Its newest known assignment.
        environment_digest: Digest of a Hello.
        config_digest: Digest of a Hello.
    """

    run: str
    epoch: int
    learner: str
    assignment_id: int
    environment_digest: str
    config_digest: str


@dataclass(slots=True)
class Fuzzer:
    """One hostile peer's messages.

    Attributes:
        victim: Whom they are for.
        learner: Its own id.
        rng: Source of chance.
    """

    victim: Victim
    learner: LearnerId
    rng: random.Random
    _sent: list[Frames] = field(default_factory=list)
    _sequence: int = 0

    def next(self) -> tuple[str, Frames]:
        """Return a kind of message, and one of them."""
        kinds = _LARGE if self.rng.random() < 1 / LARGE_EVERY else _SMALL
        name = self.rng.choice(list(kinds))
        frames = kinds[name](self)
        if len(self._sent) < 8 and sum(map(len, frames)) < 4096:
            self._sent.append(frames)
        return name, frames

    def random_frames(self) -> Frames:
        """Return any bytes in any number of frames."""
        count = self.rng.choice((1, 2, 3, 4, 4, 4, 5, 6))
        return [self.rng.randbytes(self.rng.randrange(200)) for _ in range(count)]

    def random_body(self) -> Frames:
        """Return any bytes where a message should be."""
        frames = self.valid()
        frames[3] = self.rng.randbytes(self.rng.randrange(300))
        return frames

    def random_structure(self) -> Frames:
        """Return msgpack that is no message."""
        frames = self.valid()
        frames[3] = msgpack.packb(self._structure(depth=4))
        return frames

    def mutated(self) -> Frames:
        """Return a valid message with a few bytes changed, taken out or put in."""
        frames = self.valid()
        for _ in range(self.rng.randint(1, 4)):
            index = self.rng.choice((1, 2, 2, 3, 3, 3, 3))
            frame = frames[index]
            at = self.rng.randrange(len(frame) + 1)
            put = self.rng.randbytes(self.rng.randrange(3))
            frames[index] = frame[:at] + put + frame[at + self.rng.randrange(3) :]
        return frames

    def mutated_field(self) -> Frames:
        """Return a valid message in which one field has something else, is missing, or is one too
        many.
        """
        frames = self.valid()
        index = self.rng.choice((2, 3))
        body = msgpack.unpackb(frames[index])
        name = self.rng.choice([*body, "surprise"])
        if self.rng.random() < 0.3 and name in body:
            del body[name]
        else:
            body[name] = self._structure(depth=2)
        frames[index] = msgpack.packb(body)
        return frames

    def special_body(self) -> Frames:
        """Return a body with one of msgpack's pitfalls."""
        frames = self.valid()
        frames[self.rng.choice((2, 3))] = self.rng.choice(_SPECIAL)
        return frames

    def nested(self) -> Frames:
        """Return lists in lists in lists."""
        frames = self.valid()
        frames[3] = b"\x91" * self.rng.choice((10, 100, 500, 1000, 5000)) + b"\xc0"
        return frames

    def other_version(self) -> Frames:
        """Return another protocol version, with anything after it."""
        versions = [version for version in range(256) if version != PROTOCOL_VERSION]
        frames = self.valid()
        return [frames[0], bytes([self.rng.choice(versions), frames[1][1]]), *frames[2:]]

    def replay(self) -> Frames:
        """Send a message again."""
        return list(self.rng.choice(self._sent)) if self._sent else self.valid()

    def other_run(self) -> Frames:
        """Return a message for another run or another epoch."""
        header = self._header()
        if self.rng.random() < 0.5:
            return encode(replace(header, run="another"), self._message())
        beat = Heartbeat(assignment_id=None, attempt=0, progress=1, agent_steps=0, rss_bytes=1)
        return encode(replace(header, epoch=self.victim.epoch + self.rng.choice((-1, 1))), beat)

    def impostor(self) -> Frames:
        """Return a message in the name of the learner that works."""
        header = replace(self._header(), learner=LearnerId(self.victim.learner))
        return encode(header, self.rng.choice((self._finished(), Goodbye(reason="so there"))))

    def as_controller(self) -> Frames:
        """Return a message that only a controller sends."""
        message = self.rng.choice((Stop(grace_s=0.0), Welcome(heartbeat_s=0.0)))
        return encode(self._header(), message)

    def unwelcome(self) -> Frames:
        """Return a valid message of the run and the epoch, by a learner that was never welcomed."""
        return self.valid()

    def wrong_hello(self) -> Frames:
        """Return a Hello from another configuration."""
        return encode(self._header(), self._hello())

    def burst(self) -> Frames:
        """Return far too many frames."""
        return [b"x"] * self.rng.choice((5, 100, 5000))

    def large(self) -> Frames:
        """Return a frame just below the limit, with more than msgpack or the header may have."""
        frames = self.valid()
        size = self.rng.choice((70_000, 300_000, MAX_FRAME_BYTES - 10))
        fillers = (b"\x90" * size, b"\xdb" + size.to_bytes(4, "big") + b"a" * size, b"\0" * size)
        frames[self.rng.choice((2, 3))] = self.rng.choice(fillers)
        return frames

    def valid(self) -> Frames:
        """Return a message that a learner might send, one that was welcomed."""
        return encode(self._header(), self._message())

    def _header(self) -> Header:
        self._sequence += 1
        return Header(
            run=self.victim.run,
            epoch=self.victim.epoch,
            learner=self.learner,
            sequence=self._sequence,
        )

    def _message(self) -> Message:
        number = AssignmentId(self.victim.assignment_id)
        messages: tuple[Message, ...] = (
            Heartbeat(
                assignment_id=number,
                attempt=1,
                progress=self._sequence,
                agent_steps=5,
                rss_bytes=1,
            ),
            Failed(assignment_id=number, attempt=1, kind="error", reason="on fire \x1b[2J"),
            self._finished(),
            Goodbye(reason="bye"),
        )
        return self.rng.choice(messages)

    def _finished(self) -> Finished:
        return Finished(
            assignment_id=AssignmentId(self.victim.assignment_id),
            attempt=1,
            checkpoints=(),
            tallies=(),
            metrics={"train/loss": 0.5},
            duration_s=1.0,
        )

    def _hello(self) -> Hello:
        return Hello(
            learner=self.learner,
            pid=self.rng.randrange(1, 2**22),
            host="hostile",
            protocol=PROTOCOL_VERSION,
            arena_version="0.0.0",
            environment_digest=Digest(self.victim.environment_digest),
            config_digest=WRONG_DIGEST,
            device="cpu",
            slots=1,
            populations=(),
            store=None,
        )

    def _structure(self, *, depth: int) -> Any:
        rng = self.rng
        match rng.randrange(8 if depth else 6):
            case 0:
                return rng.choice((None, True, False))
            case 1:
                return rng.randrange(-(2**63), 2**64)
            case 2:
                return rng.choice((float("nan"), float("inf"), -float("inf"), -1.0, rng.random()))
            case 3:
                return rng.choice(("", "../../etc", "\x1b[31m", "player/p000", "a" * 300))
            case 4:
                return rng.randbytes(rng.randrange(20))
            case 5:
                return rng.choice((WRONG_DIGEST, "bot:random", 2**63, -1))
            case 6:
                return [self._structure(depth=depth - 1) for _ in range(rng.randrange(4))]
            case _:
                items = range(rng.randrange(4))
                return {str(item): self._structure(depth=depth - 1) for item in items}


Make = Callable[[Fuzzer], Frames]
_SMALL: Mapping[str, Make] = {
    "random_frames": Fuzzer.random_frames,
    "random_body": Fuzzer.random_body,
    "random_structure": Fuzzer.random_structure,
    "mutated": Fuzzer.mutated,
    "mutated_field": Fuzzer.mutated_field,
    "special_body": Fuzzer.special_body,
    "nested": Fuzzer.nested,
    "other_version": Fuzzer.other_version,
    "replay": Fuzzer.replay,
    "other_run": Fuzzer.other_run,
    "impostor": Fuzzer.impostor,
    "as_controller": Fuzzer.as_controller,
    "unwelcome": Fuzzer.unwelcome,
    "wrong_hello": Fuzzer.wrong_hello,
}
_LARGE: Mapping[str, Make] = {"burst": Fuzzer.burst, "large": Fuzzer.large}


def oversize() -> Frames:
    """Return a frame over the limit: libzmq hangs up on its sender."""
    return [b"ARENA", bytes([PROTOCOL_VERSION, 1]), b"", b"x" * (MAX_FRAME_BYTES + 1)]
