"""Several processes that start together: each says that it is ready, waits, runs, and reports.

A child prints ``ready``, reads one line, works, and prints one JSON object with ``agent_steps`` and
``duration_s``. Getting ready (imports, environments, a first call) is not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from populations.errors import RunFailed

READY = "ready"


def wait_for_go() -> None:
    """Tell the parent that this process is ready, and wait for its line; exit without one."""
    sys.stdout.write(f"{READY}\n")
    # A pipe is buffered in blocks: the parent would wait for ever.
    sys.stdout.flush()
    if not sys.stdin.readline():
        sys.exit(1)  # the parent is gone


def rate_of_children(module: str, arguments: Sequence[Sequence[str]]) -> float:
    """Run a module several times side by side, one thread each.

    Args:
        module: Module to run as ``python -m``; it speaks the protocol above.
        arguments: One child for each.

    Returns:
        Agent steps per second of all children together.

    Raises:
        RunFailed: If one of them fails.
    """
    with ExitStack() as stack:
        children = [stack.enter_context(_Child(module, given)) for given in arguments]
        for child in children:
            child.wait_until_ready()
        for child in children:
            # All are ready before one begins, so that none has the machine for itself.
            child.go()
        # Each by its own clock: none waits for the slowest.
        return sum(child.rate() for child in children)


class _Child:
    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A learner computes on one thread, and so does what bounds it.
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exception: object) -> None:
        # Another child failed, or the measurement was interrupted.
        if self._process.poll() is None:
            self._process.kill()
        # Closes the pipes, and leaves no zombie.
        self._process.communicate()

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != READY:
            raise self._failure(f"said {line!r} instead of {READY!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def rate(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        # After reading: a child that died has closed its output, so the line above is empty.
        if self._process.wait() != 0:
            raise self._failure(f"ended with code {self._process.returncode}")
        try:
            report = json.loads(line)
            return float(report["agent_steps"]) / float(report["duration_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._failure(f"said {line!r} instead of a report") from error

    def _failure(self, what: str) -> RunFailed:
        return RunFailed(f"{self._module} {what}; its messages are on standard error")
