"""A process of Arena's own that works for this one over a socket: its start, its end, its own side.

Tests: `tests/arena/envs/workers/test_crew.py`, `tests/arena/learners/ranks/test_crew.py`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from arena.processes.bounded_log import open_shortened
from arena.processes.child import end_with_guard, give_way_alike
from arena.processes.log import begin_log
from arena.processes.parent import STACKS, Child, code_or_signal

END_S = 5.0
"""Longest wait for a helper to end by itself."""


class Helper(Child):
    """A helper, seen from the process that it works for.

    Args:
        module: Module that is run, with ``--socket-fd`` and the arguments.
        arguments: Further arguments.
        pass_fds: Descriptors that it gets beside its socket.

    Attributes:
        socket: This end of the connection.
    """

    def __init__(self, module: str, *arguments: str, pass_fds: Sequence[int] = ()) -> None:
        self.socket, theirs = socket.socketpair()
        try:
            number = theirs.fileno()
            arguments = ("--socket-fd", str(number), *arguments)
            super().__init__(module, arguments, pass_fds=(number, *pass_fds))
        except OSError:
            self.socket.close()
            raise
        finally:
            theirs.close()

    def how_it_ended(self) -> str:
        """Return how a helper ended whose connection was closed, in words."""
        try:
            code = self.wait(END_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        how = code_or_signal(code)
        if code == -signal.SIGKILL:
            how += ", perhaps for lack of memory"
        return f"ended with {how}" if code >= 0 else f"was killed by {how}"

    def close(self) -> None:
        """Wait for the helper's end after closing its connection, and kill it after `END_S`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(END_S)
        super().close()

    def kill_group(self) -> None:
        """Kill the helper; repeating it does nothing."""
        self.socket.close()
        # A process that waits for a disk cannot be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            super().kill_group()


def begin_helper(name: str) -> None:
    """Prepare this process to be a helper: its end, its priority, its log, a file of its stacks.

    Args:
        name: Name of it beside the process that it works for, as in ``env-1``.
    """
    end_with_guard()
    # Terminals and cluster managers signal whole groups. Only the parent decides when a helper
    # ends, because it may need some more steps to save everything.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    give_way_alike()
    begin_log(logging.WARNING)
    faulthandler.enable()
    # If a learner hangs, the cause may be this helper.
    faulthandler.register(signal.SIGUSR1, file=_stacks(name), all_threads=True)


def _stacks(name: str) -> BinaryIO | TextIO:
    """Return a file of its own beside the learner's: several processes write at a time."""
    learners = os.environ.get(STACKS)
    if learners is None:
        return sys.stderr
    path = Path(learners)
    # The file is opened now, because a hanging process cannot open one.
    try:
        return open_shortened(path.with_name(f"{path.stem}-{name}.txt"))
    except OSError as error:
        logging.warning("stacks go to this log: %s", error)
        return sys.stderr
