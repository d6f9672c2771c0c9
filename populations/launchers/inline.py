"""Launcher of one learner in the controller's own process, over the in-memory transport.

Its purpose is debugging: a debugger sees controller and learner in one process.

Tests: `tests/contracts/test_launchers.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING

from arena.config import LearnerSetup
from arena.wire.in_memory import InMemoryHub
from arena.wire.messages import Hello

if TYPE_CHECKING:
    from arena.learners.inline import InlineLearner


class InlineLauncher:
    """Launcher that starts a learner as a thread. There is one slot."""

    def __init__(self, *, setup: LearnerSetup, hub: InMemoryHub) -> None:
        self._setup = setup
        self._hub = hub
        self._learner: InlineLearner | None = None

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start the thread, after the end of its predecessor."""
        self.kill(slot)
        # The import is late and by name, because this module imports torch, which the controller's
        # half must not do.
        inline = import_module("arena.learners.inline")
        self._learner = inline.start_inline_learner(self._setup, self._hub, populations)

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """Ask the thread to end and wait for it: a thread cannot be killed."""
        if self._learner is not None:
            # The thread ends within its grace period, so `join` needs no timeout.
            self._learner.stop()
            self._learner.join()
            self._learner = None

    def slot_of(self, hello: Hello) -> int | None:
        """Return slot 0 if the Hello is from the thread, else None."""
        is_ours = self._learner is not None and self._learner.learner == hello.learner
        return 0 if is_ours else None

    def waiting(self) -> Collection[int]:
        """Return no slot, because a thread always starts at once."""
        return ()

    def exited(self) -> list[tuple[int, int | None]]:
        """Return slot 0 with exit code 0 once after its thread has ended."""
        if self._learner is not None and not self._learner.is_alive():
            self._learner.join()
            self._learner = None
            # A thread has no exit code; if it raised an exception, the log has it.
            return [(0, 0)]
        return []

    def close(self) -> None:
        """End the thread."""
        self.kill(0)
