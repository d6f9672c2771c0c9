"""Keys of a terminal, one at a time, without waiting for a line.

Tests: `tests/tools/league/test_watch.py`.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from arena.processes.guard import command_pid

NAMES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left",
    b"\t": "right", b"\x1b[Z": "left", b"\x1b": "escape",
}  # fmt: skip
KEY = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?|.", re.DOTALL)
"""A key as a terminal sends it: a sequence, or one byte."""

MOST_BYTES = 1 << 10
"""Most bytes that are read at once."""


class Keys:
    """Keys that are pressed on standard input while it is in this mode."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pressed: list[bytes] = []

    def wait(self, timeout_s: float) -> str:
        """Return the name of the next key; empty: none was pressed in this time, or one without a
        name. Of keys that come at once, as pasted ones do, each is the next one in turn.

        A terminal that was closed is the key ``q``.
        """
        if self._pressed:
            return self._next()
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not ready:
            return ""
        if is_in_background():
            # In the background the shell reads the keys.
            time.sleep(timeout_s)
            return ""
        # All bytes of a key's escape sequence arrive in one read.
        self._pressed = KEY.findall(os.read(self._descriptor, MOST_BYTES)) or [b"q"]
        return self._next()

    def _next(self) -> str:
        pressed = self._pressed.pop(0)
        return NAMES.get(pressed, chr(pressed[0]) if len(pressed) == 1 else "")


def has_keys() -> bool:
    """Return whether keys can be read here: a pipe gets one text after the other."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_in_background()


def is_in_background() -> bool:
    """Return whether the command is a background job of the shell on its terminal.

    The kernel would stop it as it reads there, but not a process in a session of its own.
    """
    try:
        with open(f"/proc/{command_pid()}/stat", "rb") as file:
            # The fields after the program's name are state, parent, group, session, terminal and
            # its group.
            _, _, group, _, _, foreground = file.read().rpartition(b")")[2].split()[:6]
    # Without /proc there are no guards, so the kernel stops a background job that reads.
    except FileNotFoundError:
        return False
    # -1 means that the process has no terminal, so no shell reads there.
    return int(foreground) > 0 and foreground != group


@contextmanager
def read_keys() -> Iterator[Keys]:
    """Read single keys from the terminal on standard input; its mode comes back afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        # In cbreak mode, unlike in raw mode, Ctrl-C stays a signal.
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        # Keys that were typed but not read must not reach the shell as a command.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
