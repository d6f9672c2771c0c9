"""Signals that come together.

Tests: `tests/arena/processes/test_bursts.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

TOGETHER_S = 0.5
"""Longest time between two signals of one burst."""


class Bursts:
    """Counter of requests made by signals.

    Who ends a whole service (systemd, Slurm) signals each of its processes, guards too, and these
    pass it on (`arena.processes.guard`): one request comes as several signals.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[int | str, float] = {}

    def is_new(self, signal: int | str) -> bool:
        """Return whether a signal that has come now is a request, not one more of its burst."""
        now_s, before_s = self._clock(), self._last.get(signal, -math.inf)
        self._last[signal] = now_s
        return now_s - before_s > TOGETHER_S
