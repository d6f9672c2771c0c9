"""What Ctrl-C and SIGTERM mean to a running controller."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populations.controller.server import Server

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals(server: Server) -> Iterator[None]:
    """Stop a server with everything saved at the first signal, at once at the second."""
    received: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        received.append(name)
        if len(received) > 1:
            raise KeyboardInterrupt
        server.request_stop(f"interrupted by {name}")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
