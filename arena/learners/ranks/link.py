"""Connections between the ranks of a learner: numbers in shared memory, and messages.

Rank 0 has a socket to each other rank. Numbers are written to memory that all ranks map; a byte to
rank 0 and one back signal that all have written. A waiting rank sleeps, so there may be more ranks
than cores. A rank whose socket is closed is lost.

Shapes: N ranks, K numbers of an exchange.

Tests: `tests/arena/learners/ranks/test_link.py`.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from arena.codec import from_msgpack, msgpack_bytes
from arena.errors import ArenaError, DecodeError
from arena.wire.messages import Failed

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

ARRIVED, MESSAGE, FAILED = b".", b"m", b"f"
"""First byte of a message: numbers are ready; a Struct follows; a `Failed` follows."""

WAIT_S = 1.0
"""Longest time between two checks of the other ranks' progress."""

LINE = 64
"""Bytes of a cache line; counters of different ranks lie in different lines."""

MIN_BYTES = 4096
MAX_MESSAGE_BYTES = 1 << 28

_LENGTH = struct.Struct("<I")
_WAIT = struct.pack("ll", int(WAIT_S), 0)


class RankLost(ArenaError):
    """A rank has ended.

    Attributes:
        rank: Its number.
    """

    def __init__(self, rank: int, how: str | None = None) -> None:
        super().__init__(how or f"rank {rank} has ended")
        self.rank = rank


class RankFailed(ArenaError):
    """A rank could not carry out its share.

    Attributes:
        rank: Its number.
        failed: Its message.
    """

    def __init__(self, rank: int, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.rank = rank
        self.failed = failed


class Link:
    """One rank's connection to the others. Owned by one thread.

    Args:
        sockets: Sockets by rank: from rank 0 to all others, from any other rank to rank 0.
        memory_fd: Descriptor of the shared memory, closed with the link.
        rank: Number of this rank.
        number: N.
        waiting: Callback that runs at least every `WAIT_S`, also while this rank waits.
    """

    def __init__(
        self,
        sockets: Sequence[tuple[int, socket.socket]],
        memory_fd: int,
        *,
        rank: int,
        number: int,
        waiting: Callable[[], object] = lambda: None,
    ) -> None:
        self.rank = rank
        self.number = number
        self._sockets = dict(sockets)
        for _, end in sockets:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _WAIT)
        self._fd = memory_fd
        self._waiting = waiting
        self._looked_s = 0.0
        self._turn = 0
        self._capacity = 0
        self._map(MIN_BYTES)

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Send numbers to the other ranks, return theirs; see `arena.normalization.Exchange`.

        Raises:
            RankLost: If a rank has ended.
            RankFailed: If a rank has failed.
        """
        size = values.numel() * values.element_size()
        if size > self._capacity:
            # The larger slots overlap the old ones, which other ranks may still read.
            self._meet()
            self._map(1 << (size - 1).bit_length())
        # Two slots alternate: a rank writes the next numbers while another one reads these.
        self._turn = 1 - self._turn
        rows = self._slots[self._turn, :, :size].view(values.dtype)
        rows[self.rank].copy_(values)
        self._meet()
        return rows

    def send(self, rank: int, message: msgspec.Struct) -> None:
        """Send a Struct to a rank.

        Raises:
            RankLost: If it has ended.
        """
        body = msgpack_bytes(message, is_ours=True)
        self.send_bytes(rank, body, kind=FAILED if isinstance(message, Failed) else MESSAGE)

    def send_bytes(self, rank: int, body: bytes, *, kind: bytes = MESSAGE) -> None:
        """Send bytes to a rank.

        Raises:
            RankLost: If it has ended.
        """
        self._send(rank, kind + _LENGTH.pack(len(body)) + body)

    def receive(self, rank: int, kind: type[T]) -> T:
        """Wait for a rank's message of a kind.

        Raises:
            RankLost: If it has ended, or sends anything else.
            RankFailed: If it has failed.
        """
        return _decoded(rank, self.receive_bytes(rank), kind)

    def receive_bytes(self, rank: int) -> bytes:
        """Wait for a rank's bytes; raises as `receive` does."""
        self._expect(rank, MESSAGE)
        return self._body(rank)

    @property
    def is_told_to_stop(self) -> bool:
        """Return whether rank 0 received a stop; every rank reads the same flag."""
        return bool(self._header[0, 0])

    @is_told_to_stop.setter
    def is_told_to_stop(self, value: bool) -> None:
        self._header[0, 0] = value

    def count(self, agent_steps: int) -> None:
        """Count a turn of this rank's loop, and its trainees' decisions in it."""
        self._header[1 + self.rank, :2] += (1, agent_steps)

    def counts(self) -> tuple[int, int]:
        """Return turns and decisions of all ranks so far."""
        turns, agent_steps = self._header[1:, :2].sum(axis=0).tolist()
        return turns, agent_steps

    @property
    def has_begun(self) -> bool:
        """Return whether each other rank has counted a turn; until then it is loading."""
        return bool((self._header[2:, 0] > 0).all())

    def close(self) -> None:
        """Close the connections."""
        for end in self._sockets.values():
            end.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _map(self, capacity: int) -> None:
        """Map slots of so many bytes; all ranks do so at the same exchange."""
        # torch takes seconds to import, and a process that only handles errors of ranks needs
        # none.
        import torch

        begin = LINE * (1 + self.number)
        num_bytes = begin + 2 * self.number * capacity
        # Every rank may do this: the file only grows, and to the same size.
        if os.fstat(self._fd).st_size < num_bytes:
            os.ftruncate(self._fd, num_bytes)
        memory = mmap.mmap(self._fd, num_bytes)
        self._capacity = capacity
        self._header = np.frombuffer(memory, np.int64, count=begin // 8).reshape(-1, LINE // 8)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        self._slots = whole[begin:].view(2, self.number, capacity)

    def _meet(self) -> None:
        """Wait until all ranks have arrived."""
        if self.rank:
            self._send(0, ARRIVED)
            self._expect(0, ARRIVED)
            return
        for rank in self._sockets:
            self._expect(rank, ARRIVED)
        for rank in self._sockets:
            self._send(rank, ARRIVED)
        # Lost ranks are detected even when all others have arrived already.
        if time.monotonic() - self._looked_s > WAIT_S:
            self._look()

    def _look(self) -> None:
        self._looked_s = time.monotonic()
        self._waiting()

    def _expect(self, rank: int, kind: bytes) -> None:
        found = self._bytes(rank, 1)
        if found == FAILED:
            raise RankFailed(rank, _decoded(rank, self._body(rank), Failed))
        if found != kind:
            raise RankLost(rank)

    def _body(self, rank: int) -> bytes:
        (size,) = _LENGTH.unpack(self._bytes(rank, _LENGTH.size))
        if size > MAX_MESSAGE_BYTES:
            raise RankLost(rank)
        return self._bytes(rank, size)

    def _bytes(self, rank: int, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                part = self._sockets[rank].recv(size - len(found))
            except BlockingIOError:
                self._look()
                continue
            except OSError:
                part = b""
            if not part:
                raise RankLost(rank)
            found += part
        return found

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._sockets[rank].sendall(data)
        except OSError:
            raise RankLost(rank) from None


def _decoded(rank: int, body: bytes, kind: type[T]) -> T:
    try:
        return from_msgpack(body, kind, limit=MAX_MESSAGE_BYTES, is_ours=True)
    except DecodeError:
        # Any socket error means that the rank is lost.
        raise RankLost(rank) from None
