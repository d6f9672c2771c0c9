"""`--watch` on a terminal: keys change the view, and every end restores the terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TIMEOUT_S = 60.0
CODE = """
import sys
from tools.league.command import league
from tools.terminal.signals import leave_on_signals
from pathlib import Path
with leave_on_signals():
    league(Path(sys.argv[1]), sys.argv[2], watch=True)
"""


JOB = """
import sys
from arena.processes.guard import contain
from tools.league.keys import is_in_background
contain()
for _ in sys.stdin:
    print(is_in_background(), flush=True)
"""

SHELL = f"""
import os, signal, subprocess, sys
# The terminal of its session.
os.close(os.open(os.ttyname(0), os.O_RDWR))
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
job = subprocess.Popen([sys.executable, "-c", {JOB!r}], process_group=0, text=True, **pipes)
for group in (os.getpgrp(), job.pid):
    os.tcsetpgrp(0, group)
    job.stdin.write("?\\n")
    job.stdin.flush()
    print(job.stdout.readline().strip(), flush=True)
job.stdin.close()
job.wait()
"""


class Terminal:
    """A process on a terminal of 80 by 40 characters."""

    def __init__(self, run: Path, view: str = "standings", *, code: str = CODE) -> None:
        self._ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (40, 80))
        self.before = termios.tcgetattr(self.theirs)
        # The variable COLUMNS would override the terminal's size.
        sizeless = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(run), view],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            env={**sizeless, "TERM": "xterm", "OMP_NUM_THREADS": "1"},
        )
        self.text = ""

    def wait_for(self, text: str, *, then: str = "") -> str:
        """Read until a text appears after all that was waited for before; return what came.

        Args:
            text: The text.
            then: Text behind it and any number of blanks.
        """
        wanted = re.compile(re.escape(text) + (f" +{re.escape(then)}" if then else ""))
        deadline_s = time.monotonic() + TIMEOUT_S
        while (found := wanted.search(self.text)) is None:
            assert time.monotonic() < deadline_s, self.text
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if ready:
                self.text += os.read(self._ours, 65536).decode()
            assert ready or self.process.poll() is None, self.text
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(board_run: Path) -> Iterator[Terminal]:
    terminal = Terminal(board_run)
    yield terminal
    terminal.close()


ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda terminal: terminal.press(b"q"), 0),
        (lambda terminal: terminal.process.send_signal(signal.SIGINT), 130),
        (lambda terminal: terminal.process.send_signal(signal.SIGTERM), 143),
    ],
    ids=["q", "SIGINT", "SIGTERM"],
)
def test_keys_change_the_view_and_the_terminal_comes_back(
    terminal: Terminal, end: Callable[[Terminal], None], code: int
) -> None:
    terminal.wait_for(ENTER)
    terminal.wait_for("standings of player")
    assert termios.tcgetattr(terminal.theirs) != terminal.before, "keys are read one by one"
    terminal.press(b"2")
    terminal.wait_for("2\xa0ratings]")
    terminal.press(b"\x1b[C")
    terminal.wait_for("3\xa0payoff]")
    terminal.press(b"\x1b[D")
    terminal.wait_for("2\xa0ratings]")
    end(terminal)
    terminal.wait_for(LEAVE)
    assert terminal.process.wait(timeout=TIMEOUT_S) == code
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_keys_belong_to_the_shell_of_a_job_in_the_background() -> None:
    ours, theirs = pty.openpty()
    with open(ours, "rb"), open(theirs, "rb") as terminal:
        told = subprocess.run(
            [sys.executable, "-c", SHELL],
            stdin=terminal,
            stdout=subprocess.PIPE,
            start_new_session=True,
            check=True,
            timeout=TIMEOUT_S,
        ).stdout
    assert told.split() == [b"True", b"False"]
