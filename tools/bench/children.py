"""Several processes that start together: each says that it is ready, waits, runs, and reports.

A child prints ``ready``, reads one line, works, and prints one JSON object with ``agent_steps`` and
``duration_s``. Getting ready (imports, environments, a first call) is not measured.

    python -m populations.commands.bench.loop 10 '{}'
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from arena.processes.parent import Child
from populations.errors import RunFailed

from .measure import Work, timed

READY = "ready"


def work_as_child(make: Callable[..., Work]) -> None:
    """Be such a child, on one thread; exit without a line.

    Args:
        make: Function that makes the work of the arguments that follow the seconds.
    """
    seconds, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    work = make(*arguments)
    # The first call is not timed, because it allocates and imports.
    work()
    sys.stdout.write(f"{READY}\n")
    # A pipe is buffered in blocks, so without a flush the parent would wait for ever.
    sys.stdout.flush()
    if not sys.stdin.readline():
        sys.exit(1)  # the parent is gone
    agent_steps, duration_s = timed(work, seconds=float(seconds))
    sys.stdout.write(f"{json.dumps({'agent_steps': agent_steps, 'duration_s': duration_s})}\n")


def rate_of_children(module: str, arguments: Sequence[Sequence[str]]) -> float:
    """Run a module several times side by side, one thread each.

    Args:
        module: Module to run as ``python -m``; it speaks the protocol above.
        arguments: Those of each child.

    Returns:
        Agent steps per second of all children together.

    Raises:
        RunFailed: If one of them fails.
    """
    with ExitStack() as stack:
        children = [
            stack.enter_context(_Measured(module, given, talks="output")) for given in arguments
        ]
        for child in children:
            child.wait_until_ready()
        for child in children:
            # All children are ready before the first one begins, so that none has the machine for
            # itself.
            child.tell(b"go")
        # Each child measures by its own clock, so that none waits for the slowest.
        return sum(child.rate() for child in children)


class _Measured(Child):
    def wait_until_ready(self) -> None:
        line = self._line()
        if line.strip() != READY:
            raise self._failure(f"said {line!r} instead of {READY!r}")

    def rate(self) -> float:
        line = self._line()
        # A child that died has closed its output, so the line above is empty and its exit code is
        # here.
        if code := self.wait():
            raise self._failure(f"ended with code {code}")
        try:
            report = json.loads(line)
            return float(report["agent_steps"]) / float(report["duration_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._failure(f"said {line!r} instead of a report") from error

    def _line(self) -> str:
        return next((line.decode() for line in self.events(math.inf)), "")

    def _failure(self, what: str) -> RunFailed:
        return RunFailed(f"{self.module} {what}; its messages are on standard error")
