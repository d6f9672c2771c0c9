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

    A service manager (systemd, Slurm) signals every process of a service, guards included, and
    guards pass signals on (`arena.processes.guard`), so one request arrives as several signals.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[int | str, float] = {}

    def is_new(self, signal: int | str) -> bool:
        """Return whether a signal that has come now is a request, not one more of its burst."""
        now_s = self._clock()
        is_new = now_s - self._begun.get(signal, -math.inf) > TOGETHER_S
        # The time is that of the burst's first signal, so repeated key presses count as separate
        # requests.
        if is_new:
            self._begun[signal] = now_s
        return is_new
