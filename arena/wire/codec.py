"""Messages to frames and back: msgpack, strict both ways.

    frame 0   b"ARENA"
    frame 1   protocol version (1 byte), kind of message (1 byte)
    frame 2   the header, a msgpack map
    frame 3   the body, a msgpack map

Messages are also checked on the way out, by the same rules, so that an error shows where it was
made. Errors never quote a received message beyond a few bytes in hexadecimal: a deeply nested one
cannot even be printed, and a crafted one should not reach a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgpack

from arena.decoding import Plain
from arena.errors import DecodeError, VersionMismatch, WireError
from arena.types import MAX_GAME_BYTES
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
from arena.wire.typed import MAX_CHARACTERS, MAX_ENTRIES, MAX_ITEMS, decoder, plain

T = TypeVar("T")

MAGIC = b"ARENA"
NUM_FRAMES = 4
MAX_FRAME_BYTES = 1 << 20
# A header holds four short fields; a limit of its own stops a crafted one early.
MAX_HEADER_BYTES = 1024
MAX_CONTAINERS = 60_000
"""Most maps and lists in one frame. A 1 MiB frame of empty lists would take long to decode."""

_PREFIX_BYTES = 64
# No extension types: nothing on the wire needs them.
_LIMITS: Mapping[str, int] = {
    # msgpack counts bytes, of which a character has up to four in UTF-8.
    "max_str_len": 4 * MAX_CHARACTERS,
    "max_bin_len": MAX_GAME_BYTES,
    "max_array_len": MAX_ITEMS,
    "max_map_len": MAX_ENTRIES,
    "max_ext_len": 0,
}

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
            _pack(header, limit=MAX_HEADER_BYTES),
            _pack(message, limit=MAX_FRAME_BYTES),
        ]
    except (DecodeError, KeyError, OverflowError, TypeError, ValueError) as error:
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
    # Checked in the order of cost: magic and version before any unpacking.
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
    header = _unpack(header_frame, kind=Header, limit=MAX_HEADER_BYTES)
    message = _unpack(body_frame, kind=kind, limit=MAX_FRAME_BYTES)
    return header, message


def body_bytes(message: Message) -> int:
    """Return the size of a message's body, whether or not it may be sent."""
    return len(msgpack.packb(plain(message)))


def prefix(frame: bytes) -> str:
    """Return the first bytes of a frame in hexadecimal, for logs."""
    return bytes(frame[:_PREFIX_BYTES]).hex()


def _pack(value: Header | Message | StoreMessage, *, limit: int) -> bytes:
    data = plain(value)
    # The receiver's own rules, so that an invalid message fails at its origin.
    decoder(type(value))(data)
    frame: bytes = msgpack.packb(data)
    if len(frame) > limit:
        raise DecodeError(f"it has {len(frame)} bytes, more than {limit}")
    return frame


def _unpack(frame: bytes, *, kind: type[T], limit: int) -> T:
    # ZeroMQ limits all frames alike (MAXMSGSIZE), and the in-memory transport none.
    if len(frame) > limit:
        raise DecodeError(f"{kind.__name__}: {len(frame)} bytes are more than {limit}")
    # Hooks count containers during parsing: afterwards the memory would be spent already.
    count = _Count()
    try:
        data = msgpack.unpackb(
            frame,
            raw=False,
            strict_map_key=True,
            use_list=True,
            object_pairs_hook=count.map,
            list_hook=count.list,
            **_LIMITS,
        )
        message: T = decoder(kind)(data)
    # The decoder's own texts quote no message, so they may be shown.
    except DecodeError as error:
        raise DecodeError(f"{kind.__name__}: {error}") from None
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException):
        # These errors may quote the payload, so their text is dropped.
        raise DecodeError(f"{kind.__name__}: no msgpack of ours: {prefix(frame)}") from None
    return message


class _Count:
    """Check for repeated keys, and for frames with too many containers."""

    def __init__(self) -> None:
        self._left = MAX_CONTAINERS

    def map(self, pairs: list[tuple[Plain, Plain]]) -> Plain:
        self._take()
        data = dict(pairs)
        # A repeated key would let two readers see different messages.
        if len(data) != len(pairs):
            raise DecodeError("a key occurs twice")
        return data

    def list(self, items: list[Plain]) -> Plain:
        self._take()
        return items

    def _take(self) -> None:
        # Raised while msgpack parses, so the rest of the frame costs nothing.
        self._left -= 1
        if self._left < 0:
            raise DecodeError(f"more than {MAX_CONTAINERS} maps and lists")
