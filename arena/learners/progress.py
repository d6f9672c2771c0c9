"""Progress of the training loop: written by the thread that works, read for heartbeats.

Tests: `tests/arena/learners/test_loop.py`.
"""

from __future__ import annotations

import threading


class Progress:
    """Counter of the training loop's turns and of trainees' decisions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = 0
        self._agent_steps = 0

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""
        with self._lock:
            self._progress += 1
            self._agent_steps += agent_steps

    def reset(self) -> None:
        """Begin another assignment: its agent steps start at 0; turns are counted on."""
        with self._lock:
            self._agent_steps = 0

    @property
    def progress(self) -> int:
        """Turns of the loop since the process began. If it stands still, so does the loop."""
        # No lock: reading one integer is atomic, and the two need not be of the same moment.
        return self._progress

    @property
    def agent_steps(self) -> int:
        """Trainees' decisions since the last ``reset``."""
        return self._agent_steps
