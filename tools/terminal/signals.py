"""Handling of Ctrl-C, SIGTERM and a closed terminal.

Tests: `tests/faults/test_signals.py`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from arena.processes.bursts import Bursts

if TYPE_CHECKING:
    from populations.controller.server.server import Server

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# A SystemExit, so that no `except Exception` on the way keeps the process.
class AtOnce(SystemExit):
    """Exit without waiting, after a second interrupt."""


def code_of(name: str) -> int:
    """Return the exit code after a signal: 130 after SIGINT, 143 after the others."""
    return 130 if name == "SIGINT" else 143


@contextmanager
def leave_on_signals() -> Iterator[None]:
    """End a command that has nothing to save, with one line and the signal's code."""

    def leave(name: str) -> None:
        _say(f"interrupted by {name}")
        raise SystemExit(code_of(name))

    with _handling(leave):
        yield


@contextmanager
def stop_on_signals(server: Server, *, run_dir: Path) -> Iterator[None]:
    """Stop a server with everything saved at the first signal, at once at the second.

    Args:
        server: Server of the run.
        run_dir: The run's directory, to say how it goes on.
    """
    resume = f"arena launch --resume --run-dir {shlex.quote(str(run_dir))}"
    received: list[str] = []
    bursts = Bursts()

    def stop(name: str) -> None:
        if not bursts.is_new(name):
            return
        received.append(name)
        # Saving takes a while, or hangs: then this is the way out.
        if len(received) > 1:
            _say(f"interrupted by {name} once more; from what is saved goes on: {resume}")
            raise AtOnce(code_of(name))
        server.request_stop(f"interrupted by {name}")

    with _handling(stop):
        yield


@contextmanager
def _handling(handle: Callable[[str], None]) -> Iterator[None]:
    """Handle signals, except those that were ignored at the start."""
    # Python sets handlers in the main thread alone; tests run commands in others.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        handle(signal.Signals(number).name)

    before = {
        number: signal.signal(number, on_signal)
        for number in SIGNALS
        # `nohup` and background jobs of shells ignore signals for their command.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Write to the descriptor: the stream may be in the middle of a line of its own."""
    # Standard error may be closed: nothing can be said, and the signal still counts.
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"arena: {text}\n".encode())
