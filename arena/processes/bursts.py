"""Signals that come together.

Tests: `tests/arena/processes/test_bounded_log.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

TOGETHER_S = 0.5
"""Longest time from the first to the last signal of one burst."""


class Bursts:
    """Counter of requests made by signals.

    Who ends a whole service (systemd, Slurm) signals each of its processes, guards too, and these
    pass it on (`arena.processes.guard`): one request comes as several signals.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[int | str, float] = {}

    def is_new(self, signal: int | str) -> bool:
        """Return whether a signal that has come now is a request, not one more of its burst."""
        now_s = self._clock()
        is_new = now_s - self._begun.get(signal, -math.inf) > TOGETHER_S
        # Its first signal's time: keys that are hammered are one request after the other.
        if is_new:
            self._begun[signal] = now_s
        return is_new
