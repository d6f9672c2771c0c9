"""Messages between a process and its workers that step environments: msgpack over a socket pair.

Observations, rewards and actions are in shared memory. A message is its length (4 bytes), its name
and its fields, checked against their annotations; file descriptors travel beside the length.

Tests: `tests/arena/envs/workers/test_crew.py`.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Literal

from arena.codec import from_msgpack, msgpack_bytes
from arena.envs.base import Phase
from arena.envs.episode_metrics import Report
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.errors import DecodeError
from arena.types import Part

MAX_BYTES = 1 << 28
_LENGTH = struct.Struct("<I")


class Make(Part, frozen=True, kw_only=True, tag=True):
    """Make a share of a batch; its memory comes with the message.

    Attributes:
        batch: Number of the batch.
        request: The share.
        first: Index of its first environment in the batch.
        num_envs: B of the batch.
    """

    batch: int
    request: EnvsRequest
    first: int
    num_envs: int


class Play(Part, frozen=True, kw_only=True, tag=True):
    """Reset, or step with the actions in shared memory, after the calls since the last message.

    Attributes:
        batch: Number of the batch.
        max_faults: Number of faults that may be tolerated in this call.
        halted: Indices in the share of the environments that were halted.
        resumed: Indices in the share of the environments that were resumed.
        phases: Phase of each environment, None: the same as before; empty: all are the same.
        seeds: Seeds of the share for a reset. None: it steps.
    """

    batch: int
    max_faults: int
    halted: tuple[int, ...] = ()
    resumed: tuple[int, ...] = ()
    phases: tuple[Phase | None, ...] = ()
    seeds: tuple[int, ...] | None = None


class Close(Part, frozen=True, kw_only=True, tag=True):
    """Close a batch."""

    batch: int


ErrorKind = Literal["environment", "making", "exhaustion", "config", "other"]


class Error(Part, frozen=True, kw_only=True):
    """Error that ended a command, or a fault of an environment.

    Attributes:
        kind: Class of the error: of an environment, of one that cannot be made, of the machine, of
            the configuration, or any other.
        text: Text of the error.
        traceback: Its traceback.
        stage: Stage of a fault, as for `arena.envs.one_by_one.envs.Faults.bear`.
        num_played: Completed episodes of the share, as for `bear`.
    """

    kind: ErrorKind
    text: str
    traceback: str
    stage: int = 0
    num_played: int = 0


class Answer(Part, frozen=True, kw_only=True, tag=True):
    """Answer to each command.

    Attributes:
        faults: Faults in the order of their discovery.
        figures: Reports of episodes that ended, with indices in the share.
        has_void: Whether an episode is void.
        num_played: Episodes that the share has played to their ends since the reset.
        error: Error that ended the command; None: it was carried out.
    """

    faults: tuple[Error, ...] = ()
    figures: tuple[Report, ...] = ()
    has_void: bool = False
    num_played: int = 0
    error: Error | None = None


Command = Make | Play | Close


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
        """Send a message, optionally with a file descriptor.

        Raises:
            OSError: If the other end is closed.
        """
        body = msgpack_bytes(message, is_ours=True)
        length = _LENGTH.pack(len(body))
        if fd is None:
            self._socket.sendall(length + body)
            return
        socket.send_fds(self._socket, [length], [fd])
        self._socket.sendall(body)

    def receive(self) -> tuple[Any, int | None]:
        """Wait for a message; return it and the descriptor that came with it, if any.

        Raises:
            EOFError: If the other end is closed.
            DecodeError: If the bytes are no message.
            OSError: If the connection fails.
        """
        # Four bytes are never split, because each side sends only after the other has read
        # everything.
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
        return from_msgpack(body, Command | Answer, limit=MAX_BYTES, is_ours=True), fd

    def close(self) -> None:
        """Close this end; the other one reads an end of file."""
        self._socket.close()
