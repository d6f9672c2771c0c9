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
from arena.users_code import Interrupt

if TYPE_CHECKING:
    from populations.controller.server.server import Server

_Handler = Callable[[int, FrameType | None], None]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

STUCK_S = 3.0
"""Time after a signal within which its handler runs; a call into a library may take for ever."""


# A SystemExit is not caught by `except Exception` on the way.
class Interrupted(SystemExit, Interrupt):
    """Exit because of a signal."""


class AtOnce(Interrupted):
    """Exit without waiting, after a second interrupt."""


def code_of(name: str) -> int:
    """Return the exit code after a signal: 130 after SIGINT, 143 after the others."""
    return 130 if name == "SIGINT" else 143


@contextmanager
def leave_on_signals() -> Iterator[None]:
    """End a command that has nothing to save, with one line and the signal's code.

    Also where its handler cannot run, as Python is inside a library: an exported graph may be
    endless.
    """
    is_left = threading.Event()

    def leave(name: str) -> None:
        is_left.set()
        _say(f"interrupted by {name}")
        raise Interrupted(code_of(name))

    with _handling(leave) as handler, _woken(handler, is_left):
        yield


@contextmanager
def _woken(handler: _Handler | None, is_left: threading.Event) -> Iterator[None]:
    """Let a thread leave where a signal has come whose handler does not run."""
    if handler is None:
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    # The interpreter writes a signal's number there at once, even if the main thread is blocked.
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    watch = threading.Thread(target=_leave_stuck, args=(read, handler, is_left), daemon=True)
    # Without a thread the command still runs, only without this watch.
    with contextlib.suppress(RuntimeError):
        watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write)


def _leave_stuck(read: int, handler: _Handler, is_left: threading.Event) -> None:
    with open(read, "rb", buffering=0) as pipe:
        while numbers := pipe.read(64):
            for number in set(numbers) & set(SIGNALS):
                # The handler may have been replaced by now: a run saves, a server ends.
                if signal.getsignal(number) is handler and not is_left.wait(STUCK_S):
                    name = signal.Signals(number).name
                    _say(f"interrupted by {name}")
                    os._exit(code_of(name))


# A forked child has its own signals and must not write to this pipe.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


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
        # Saving may take long or hang, so a second signal ends the process.
        if len(received) > 1:
            _say(f"interrupted by {name} once more; from what is saved goes on: {resume}")
            raise AtOnce(code_of(name))
        server.request_stop(f"interrupted by {name}")

    with _handling(stop):
        yield


@contextmanager
def _handling(handle: Callable[[str], None]) -> Iterator[_Handler | None]:
    """Handle signals, except those that were ignored at the start; None: in no other thread."""
    # Python installs handlers in the main thread only, but tests run commands in other threads.
    if threading.current_thread() is not threading.main_thread():
        yield None
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
        yield on_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Write to the descriptor: the stream may be in the middle of a line of its own."""
    # Standard error may be closed; the signal must still be handled.
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"arena: {text}\n".encode())
