"""Launcher of one learner in the controller's own process, over the in-memory transport.

Made for debuggers.

Tests: `tests/integration/test_curves.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from arena.config import LearnerSetup
from arena.wire.in_memory import InMemoryHub

if TYPE_CHECKING:
    from arena.learners.inline import InlineLearner


class InlineLauncher:
    """Launcher that starts a learner as a thread. There is one slot."""

    def __init__(self, *, setup: LearnerSetup, hub: InMemoryHub) -> None:
        self._setup = setup
        self._hub = hub
        self._learner: InlineLearner | None = None

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start the thread."""
        # Imported by name and late: the learner's half imports torch, the controller's half never
        # does.
        inline = import_module("arena.learners.inline")
        self._learner = inline.start_inline_learner(self._setup, self._hub, populations)

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """Ask the thread to end and wait for it: a thread cannot be killed."""
        if self._learner is not None:
            # The thread ends within its grace, so `join` needs no timeout.
            self._learner.stop()
            self._learner.join()
            self._learner = None

    def running(self) -> Mapping[int, int]:
        """Return this process, while the thread runs."""
        return {0: os.getpid()} if self._learner is not None else {}

    def exited(self) -> list[tuple[int, int]]:
        """Return the slot, once its thread has ended."""
        if self._learner is not None and not self._learner.is_alive():
            self._learner.join()
            self._learner = None
            # A thread has no exit code; its exception is in the log.
            return [(0, 0)]
        return []

    def close(self) -> None:
        """End the thread."""
        self.kill(0)
