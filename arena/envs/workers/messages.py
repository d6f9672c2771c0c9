"""Messages between a process and its workers that step environments: msgpack over a socket pair.

Observations, rewards and actions are in shared memory. A message is its length (4 bytes), its name
and its fields, checked against their annotations; file descriptors travel beside the length.

Tests: `tests/arena/envs/workers/test_messages.py`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgpack

from arena.decoding import Annotation, Decode, Dialect, Plain, decoder
from arena.envs.base import Phase
from arena.envs.episode_metrics import Report
from arena.errors import DecodeError
from arena.wire.typed import plain

MAX_BYTES = 1 << 28
MAX_ITEMS = 1 << 20
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """Make a share of a batch; its memory comes with the message.

    Attributes:
        batch: Number of the batch.
        request: `EnvsRequest` of the share, as plain data.
        first: Index of its first environment in the batch.
        num_envs: B of the batch.
    """

    batch: int
    request: Mapping[str, object]
    first: int
    num_envs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call that changes environments without an answer.

    Attributes:
        kind: Method of `BatchedEnv` or `Told`.
        environments: Indices in the share that are halted or resumed.
        phases: Phase of each environment; None: the same as before.
    """

    kind: Literal["halt", "resume", "tell"]
    environments: tuple[int, ...] = ()
    phases: tuple[Phase | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Make earlier calls, then reset.

    Attributes:
        batch: Number of the batch.
        calls: Calls since the last message.
        max_faults: Number of faults that may be tolerated in this call.
        seeds: Seeds of the share.
    """

    batch: int
    calls: tuple[Call, ...]
    max_faults: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Make earlier calls, then step with the actions in shared memory; fields as in `Reset`."""

    batch: int
    calls: tuple[Call, ...]
    max_faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close a batch."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of an environment.

    Attributes:
        stage: As in `arena.envs.one_by_one.envs.Moment`.
        num_played: As there, of the share.
        text: Text of the error.
        traceback: Its traceback.
        is_exhaustion: Whether this machine ran out of something.
    """

    stage: int
    num_played: int
    text: str
    traceback: str
    is_exhaustion: bool


ErrorKind = Literal["environment", "making", "exhaustion", "config", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Error that ended a command.

    Attributes:
        kind: Class of the error: of an environment, one that cannot be made, of this machine, of
            the configuration, or any other.
        text: Text of the error.
        traceback: Its traceback.
    """

    kind: ErrorKind
    text: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to each command.

    Attributes:
        faults: Faults in the order of their discovery.
        figures: Reports of episodes that ended, with indices in the share.
        has_void: Whether an episode is void.
        num_played: Episodes that the share has played to their ends since the reset.
        error: Error that ended the command; None: it was carried out.
    """

    faults: tuple[Fault, ...] = ()
    figures: tuple[Report, ...] = ()
    has_void: bool = False
    num_played: int = 0
    error: Error | None = None


Command = Make | Reset | Step | Close

_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in (Make, Reset, Step, Close, Answer)}


def _exactly(kind: type) -> Decode:
    def decode(value: Plain) -> Plain:
        if type(value) is not kind:
            raise DecodeError(f"must be {kind.__name__}")
        return value

    return decode


_LEAVES: Mapping[Annotation, Decode] = {
    **{kind: _exactly(kind) for kind in (int, float, str, bool)},
    # Plain data of any form, which the reader checks.
    object: lambda value: value,
}

_DIALECT = Dialect(
    leaf=_LEAVES.get,
    field=lambda *_: None,
    error=DecodeError,
    is_quoting=False,
    needs_all_fields=True,
    removed_fields=frozenset(),
    max_items=MAX_ITEMS,
    max_entries=MAX_ITEMS,
)


def encode(message: Command | Answer) -> bytes:
    """Encode a message."""
    body: bytes = msgpack.packb([type(message).__name__, plain(message)])
    return body


def decode(body: bytes) -> Command | Answer:
    """Decode a message.

    Raises:
        DecodeError: If it is none.
    """
    try:
        name, data = msgpack.unpackb(body, raw=False, strict_map_key=True)
        message: Command | Answer = decoder(_KINDS[name], _DIALECT)(data)
    except DecodeError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException) as error:
        raise DecodeError(f"no message: {type(error).__name__}") from None
    return message


class Channel:
    """One end of a socket pair. Owned by one thread.

    Args:
        end: The socket, which belongs to the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def send(self, message: Command | Answer, *, fd: int | None = None) -> None:
        """Send a message, and a descriptor that the receiver is to have, too.

        Raises:
            OSError: If the other end is gone.
        """
        body = encode(message)
        length = _LENGTH.pack(len(body))
        if fd is None:
            self._socket.sendall(length + body)
            return
        socket.send_fds(self._socket, [length], [fd])
        self._socket.sendall(body)

    def receive(self) -> tuple[Any, int | None]:
        """Wait for a message; return it and the descriptor that came with it, if any.

        Raises:
            EOFError: If the other end is gone.
            DecodeError: If it is no message.
            OSError: If the connection fails.
        """
        # Four bytes are never split: each side sends only once the other has read everything.
        length, fds, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
        fd = fds[0] if fds else None
        if len(length) < _LENGTH.size:
            raise EOFError
        (size,) = _LENGTH.unpack(length)
        if size > MAX_BYTES:
            raise DecodeError(f"a message may have {MAX_BYTES} bytes, got {size}")
        body = self._socket.recv(size, socket.MSG_WAITALL)
        if len(body) < size:
            raise EOFError
        return decode(body), fd

    def close(self) -> None:
        """Close this end; the other one reads an end of file."""
        self._socket.close()
