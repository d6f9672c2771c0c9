"""Logs of what strangers cause: a line a second of each kind, and a count of the rest.

Torch-free.

Tests: `tests/arena/processes/test_paced_log.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

EVERY_S = 1.0


@dataclass(slots=True)
class _Place:
    """Place in the code that logs: the time of its last line, and how many were left out since."""

    logged_at_s: float = float("-inf")
    num_left_out: int = 0


@dataclass(eq=False)
class OneASecond(logging.Filter):
    """Filter of a logger that lets through one line a second from each place in the code.

    The next line from there says how many were left out.

    Attributes:
        clock: Monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _places: dict[tuple[str, int], _Place] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now_s = self.clock()
        with self._lock:
            place = self._places.setdefault((record.pathname, record.lineno), _Place())
            if now_s - place.logged_at_s < EVERY_S:
                place.num_left_out += 1
                return False
            left_out, place.num_left_out, place.logged_at_s = place.num_left_out, 0, now_s
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} lines like it were left out)"
            record.args = None
        return True
