"""A process that must not outlive its parent, whatever kills that: its own side.

The kernel is asked to kill it (Linux), and a pipe whose other end the parent holds tells it
(everywhere).

Tests: `tests/arena/learners/test_process.py`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading

EXIT_ORPHANED = 1
STACKS = "ARENA_STACKS"
"""Environment variable with the file of a process's stacks, for those that it starts itself."""

# <linux/prctl.h>
PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, *, death_fd: int | None) -> None:
    """Have this process killed when its parent ends, and end now if it has ended already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # After prctl: a parent that ended before it sends no signal.
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)
    if death_fd is not None:
        watch = threading.Thread(target=_wait_for_death, args=(death_fd,), daemon=True)
        watch.start()


def _wait_for_death(death_fd: int) -> None:
    """End this process once its parent is gone: nothing is written to the pipe before."""
    # Returns at the end of the file, when the parent's end of the pipe is closed.
    os.read(death_fd, 1)
    # Only a leader of its group: another's group may hold processes that go on.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def add_parent(parser: argparse.ArgumentParser) -> None:
    """Add the options by which `arena.processes.parent` says whom to die with."""
    parser.add_argument("--parent-pid", type=int, help="die with this process")
    parser.add_argument("--death-fd", type=int, help="a pipe that the parent holds open")
