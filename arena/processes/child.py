"""A process that another one has started, on its own side: its end, its priority, its answers.

Tests: `tests/arena/processes/test_guard.py`, `tests/arena/processes/test_parent.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn, TextIO

from arena.processes.guard import DEATH_FD

SESSION_NICE = "ARENA_SESSION_NICE"
"""Environment variable with the priority that a process and those that work for it give up."""

AUTOGROUP = Path("/proc/self/autogroup")
TRIES = 50
"""Most tries to change the priority of a session, because many processes may start at once."""


def end_with_guard() -> None:
    """Have this process and its group end with its guard, where that has to be asked for."""
    death_fd = os.environ.pop(DEATH_FD, None)
    if death_fd is not None:
        watch = threading.Thread(target=_wait_for_death, args=(int(death_fd),), daemon=True)
        watch.start()


def take_streams() -> tuple[TextIO, TextIO]:
    """Return this process's standard input and output for exclusive use by its parent.

    All else that reads finds nothing, and what it prints goes to standard error: code of users, and
    C code below it, may do both. What this process starts does not inherit them.
    """
    requests = os.fdopen(os.dup(0), encoding="utf8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def serve(answers: Callable[[Iterator[str]], Iterable[str]]) -> NoReturn:
    """Answer the parent, and end at once when there are no more answers.

    Args:
        answers: Function that takes the lines that the parent sends and yields those to say.
    """
    end_with_guard()
    requests, output = take_streams()
    for answer in answers(requests):
        print(answer, file=output, flush=True)
    # Threads left by an environment would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


def give_way(nice: int) -> None:
    """Give up priority, 1 to 19, for this process and all that it starts from now on.

    With autogroups Linux weighs sessions against each other, and each child leads its own: helpers
    call `give_way_alike`.
    """
    os.environ[SESSION_NICE] = str(os.nice(nice))
    give_way_alike()


def give_way_alike() -> None:
    """Lower this session's priority by as much as that of the process that it works for."""
    nice = os.environ.get(SESSION_NICE)
    for _ in range(0 if nice is None else TRIES):
        try:
            AUTOGROUP.write_text(str(nice), encoding="ascii")
        # Unprivileged processes together may do so only once in a tenth of a second.
        except BlockingIOError:
            time.sleep(0.1)
        # The kernel has no autogroups.
        except OSError:
            break
        else:
            break


def _wait_for_death(death_fd: int) -> None:
    """End this process once its guard is gone: nothing is written to the pipe before."""
    # Processes that this one starts must not hold the pipe.
    os.set_inheritable(death_fd, False)
    # read returns at the end of file, when the guard's end of the pipe is closed.
    os.read(death_fd, 1)
    # Only a group leader ends its group, because another's group may hold unrelated processes.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
