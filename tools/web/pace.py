"""Pace of a server's work: a bounded share of one core, whatever the number of readers.

Training goes on beside it. What is made anew is what somebody looks at, documents and pages alike,
and each of these has an equal part of the share, so that nothing waits for something long.

Tests: `tests/tools/web/test_pace.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock

LEAST_S = 2.0
"""Least age at which anything is made again."""

SHARE = 0.05
"""Share of one core that goes to making again what has changed."""

WATCHED_S = 15.0
"""Time after which a thing is not looked at any more: a visible page asks every five seconds."""


@dataclass(slots=True)
class Pace:
    """Pace of the work of one server. Any thread may ask.

    Attributes:
        clock: Monotonic clock in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _asked: dict[Hashable, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def is_due(self, thing: Hashable, *, made_s: float, took_s: float) -> bool:
        """Return whether a thing that somebody looks at may be made again now.

        Args:
            thing: Its name.
            made_s: Time at which it was made, on the clock.
            took_s: Seconds of a core that making it took.
        """
        now_s = self.clock()
        with self._lock:
            # Out and in again: in the order of the last look.
            self._asked.pop(thing, None)
            self._asked[thing] = now_s
            for name, asked_s in tuple(self._asked.items()):
                if now_s - asked_s <= WATCHED_S:
                    break
                del self._asked[name]
            num_watched = len(self._asked)
        # One of n has took / age of a core, which is at most SHARE / n.
        return now_s - made_s >= max(LEAST_S, num_watched * took_s / SHARE)
