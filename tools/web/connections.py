"""Bounds on connections to the page: strangers reach these, never the page itself.

Anybody who reaches the port can open connections, send half a request on each, or requests whose
answers are never read. Such a connection is waiting: for a request's beginning or rest, or for its
peer to read. It waits for some seconds only, and where there are too many, the one that has waited
longest makes room: a reader's request comes at once, and a reader takes the answer.

Tests: `tests/tools/web/test_connections.py`, `tests/faults/test_strangers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

WAIT_S = 10.0
"""Time within which a request has to arrive, from the connection or the last answer on."""

MAX_CONNECTIONS = 256
MAX_PER_ADDRESS = 128
"""Connections of one address; behind a proxy all readers have one."""

DESCRIPTOR_SHARE = 4
"""Largest part of the process's descriptors that are connections: a quarter."""

BACKLOG = 64
"""Connections that the system holds ready; all of them are accepted before any is counted."""

MAX_HEADER_BYTES = 32768


@dataclass(slots=True)
class Room:
    """All connections of a server.

    Attributes:
        most: Most connections.
        most_per_address: Most connections of one address.
        wait_s: Time within which a request has to arrive.
    """

    most: int = MAX_CONNECTIONS
    most_per_address: int = MAX_PER_ADDRESS
    wait_s: float = WAIT_S
    _connections: dict[BoundedProtocol, None] = field(default_factory=dict)

    @classmethod
    def within(cls, num_descriptors: int) -> Room:
        """Return the room of a process with so many descriptors."""
        most = max(min(MAX_CONNECTIONS, num_descriptors // DESCRIPTOR_SHARE), 2)
        return cls(most=most, most_per_address=max(min(MAX_PER_ADDRESS, most // 2), 1))

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return what makes the connections of a server, for uvicorn."""

        def make(**arguments: Any) -> BoundedProtocol:  # noqa: ANN401 - those of uvicorn
            return BoundedProtocol(self, **arguments)

        return make

    def enter(self, connection: BoundedProtocol) -> None:
        """Take in a connection that waits from now on; the longest waiting one makes room."""
        # Reinserting keeps the connections in the order in which their waiting began.
        self._connections.pop(connection, None)
        self._connections[connection] = None
        mates = [one for one in self._connections if one.address == connection.address]
        if len(mates) > self.most_per_address:
            self._close_one(mates)
        elif len(self._connections) > self.most:
            self._close_one(list(self._connections))

    def leave(self, connection: BoundedProtocol) -> None:
        """Forget a connection that is closed."""
        self._connections.pop(connection, None)

    def _close_one(self, among: list[BoundedProtocol]) -> None:
        # The longest waiting connection is closed, or the newest one if all are being answered.
        chosen = next((one for one in among if one.is_waiting), among[-1])
        self.leave(chosen)
        chosen.abort()


class BoundedProtocol(H11Protocol):
    """Connection that is closed if no request comes, or others need its place."""

    def __init__(self, room: Room, **arguments: Any) -> None:  # noqa: ANN401 - those of uvicorn
        super().__init__(**arguments)
        self._room = room
        self._timer: asyncio.TimerHandle | None = None
        self._num_unread = 0
        self.address = ""

    @property
    def is_waiting(self) -> bool:
        """Return whether no request is being answered, or its peer does not read the answers."""
        return self.flow.write_paused or self.cycle is None or self.cycle.response_complete

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """Wait until the peer reads."""
        super().pause_writing()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._room.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._begin_time()
        if not self.transport.is_closing():
            self._room.enter(self)

    def _begin_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self._room.wait_s, self._give_up)
        self._num_unread = self.transport.get_write_buffer_size()

    def _give_up(self) -> None:
        if self.flow.write_paused and self.transport.get_write_buffer_size() < self._num_unread:
            # The peer is still reading, perhaps over a slow line.
            self._begin_time()
        # A connection that is being answered does not wait; its timer restarts after the answer.
        elif self.is_waiting:
            self.abort()
