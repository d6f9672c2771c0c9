"""Messages to frames and back: msgpack, strict both ways.

    frame 0   b"ARENA"
    frame 1   protocol version (1 byte), kind of message (1 byte)
    frame 2   the header, a msgpack map
    frame 3   the body, a msgpack map

`arena.codec` reads and writes headers and bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from arena.codec import from_msgpack, prefix, to_msgpack
from arena.errors import DecodeError, VersionMismatch, WireError
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Header,
    Heartbeat,
    Hello,
    Message,
    Refuse,
    Stop,
    Train,
    Welcome,
)
from arena.wire.store_messages import (
    Denied,
    Fetch,
    Give,
    Held,
    Piece,
    StoreAnswer,
    StoreMessage,
    StoreRequest,
)

T = TypeVar("T")

MAGIC = b"ARENA"
NUM_FRAMES = 4
MAX_FRAME_BYTES = 1 << 20
# A header has four short fields; its own limit rejects a crafted one early.
MAX_HEADER_BYTES = 1024
KINDS: Mapping[int, type[Message]] = {
    1: Hello,
    2: Heartbeat,
    3: Finished,
    4: Failed,
    5: Goodbye,
    16: Welcome,
    17: Refuse,
    18: Train,
    19: Evaluate,
    20: Acknowledge,
    21: Stop,
}
"""Numbers on the wire. They never change and are never given to another message."""

STORE_REQUESTS: Mapping[int, type[StoreRequest]] = {32: Fetch, 33: Give}
STORE_ANSWERS: Mapping[int, type[StoreAnswer]] = {48: Piece, 49: Held, 50: Denied}
"""Numbers of messages that only a store and its learners exchange, on sockets of their own."""

_NUMBERS: Mapping[type[Message | StoreMessage], int] = {
    message: number
    for kinds in (KINDS, STORE_REQUESTS, STORE_ANSWERS)
    for number, message in kinds.items()
}


def encode(header: Header, message: Message | StoreMessage) -> list[bytes]:
    """Encode a message as frames.

    Raises:
        WireError: If the message breaks a rule of the wire, so that no peer could decode it.
    """
    kind = type(message)
    try:
        number = _NUMBERS[kind]
        frames = [
            MAGIC,
            bytes([PROTOCOL_VERSION, number]),
            to_msgpack(header, limit=MAX_HEADER_BYTES),
            to_msgpack(message, limit=MAX_FRAME_BYTES),
        ]
    except (DecodeError, KeyError) as error:
        raise WireError(f"{kind.__name__} cannot be sent: {error}") from None
    return frames


def decode(frames: Sequence[bytes]) -> tuple[Header, Message]:
    """Decode the message in frames from an untrusted peer; see `decode_as`."""
    return decode_as(frames, KINDS)


def decode_as(frames: Sequence[bytes], kinds: Mapping[int, type[T]]) -> tuple[Header, T]:
    """Decode the message in frames from an untrusted peer.

    Args:
        frames: Received frames.
        kinds: Messages that are expected, by number.

    Raises:
        VersionMismatch: If the sender speaks another version of the protocol.
        DecodeError: If the frames are anything else than one message. No other error is raised,
            whatever the bytes are.
    """
    if len(frames) != NUM_FRAMES:
        raise DecodeError(f"a message has {NUM_FRAMES} frames, not {len(frames)}")
    # Cheap checks come first: magic and version before any unpacking.
    magic, kind_frame, header_frame, body_frame = frames
    if magic != MAGIC:
        raise DecodeError(f"a message begins with {MAGIC!r}, not {prefix(magic)}")
    if len(kind_frame) != 2:
        raise DecodeError(f"version and kind are 2 bytes, not {len(kind_frame)}")
    version, number = kind_frame
    if version != PROTOCOL_VERSION:
        raise VersionMismatch(
            f"the peer speaks protocol version {version}, this side {PROTOCOL_VERSION}",
            theirs=version,
            ours=PROTOCOL_VERSION,
        )
    kind = kinds.get(number)
    if kind is None:
        raise DecodeError(f"there is no message of kind {number}")
    try:
        name = Header.__name__
        header = from_msgpack(header_frame, Header, limit=MAX_HEADER_BYTES)
        name = kind.__name__
        return header, from_msgpack(body_frame, kind, limit=MAX_FRAME_BYTES)
    except DecodeError as error:
        raise DecodeError(f"{name}: {error}") from None
