"""Logs of events that strangers cause: one line per second and kind, and a count of the rest.

Torch-free.

Tests: `tests/arena/processes/test_bounded_log.py`.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

EVERY_S = 1.0


class OneASecond(logging.Filter):
    """Filter of a logger that lets through one line a second from each place in the code.

    The next line from there says how many were left out.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged_at_s: dict[tuple[str, int], float] = {}
        self._num_left_out: Counter[tuple[str, int]] = Counter()
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now_s, place = self._clock(), (record.pathname, record.lineno)
        with self._lock:
            if now_s - self._logged_at_s.get(place, -math.inf) < EVERY_S:
                self._num_left_out[place] += 1
                return False
            self._logged_at_s[place] = now_s
            left_out = self._num_left_out.pop(place, 0)
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} lines like it were left out)"
            record.args = None
        return True
