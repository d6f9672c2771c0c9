"""Pace of a server's work, a bounded share of one core, and the pages that it sends meanwhile.

Training goes on beside it. What is made anew is what somebody looks at, documents and pages alike,
and each of these has an equal part of the share, so that nothing waits for something long.

Tests: `tests/tools/web/test_pace.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from threading import Lock

LEAST_S = 2.0
"""Least age at which anything is made again."""

SHARE = 0.03
"""Share of one core that goes to making again what has changed."""

WATCHED_S = 15.0
"""Time after which a thing is not looked at any more: a visible page asks every five seconds."""

MAX_PAGES = 64
"""Pages that are kept, of some hundred kilobytes each: the ones that were looked at last."""


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
            # Reinserting keeps the things in the order in which they were last requested.
            self._asked.pop(thing, None)
            self._asked[thing] = now_s
            for name, asked_s in tuple(self._asked.items()):
                if now_s - asked_s <= WATCHED_S:
                    break
                del self._asked[name]
            num_watched = len(self._asked)
        # Remaking one thing every age seconds uses took / age of a core; with n things, at most
        # SHARE / n.
        return now_s - made_s >= max(LEAST_S, num_watched * took_s / SHARE)


@dataclass(frozen=True, slots=True)
class KeptPage:
    """Page, and the version of the documents that it was made from.

    Attributes:
        html: The page.
        tag: Version of its documents.
        made_s: Time at which it was made, on the pace's clock.
        took_s: Seconds of a core that making it took.
    """

    html: str
    tag: str
    made_s: float
    took_s: float


@dataclass(slots=True)
class KeptPages:
    """Pages that were looked at last. Any thread may ask.

    Attributes:
        pace: Pace at which pages are made again.
    """

    pace: Pace
    _kept: dict[Hashable, KeptPage] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def page(self, address: Hashable, tag: str, make: Callable[[], str | None]) -> KeptPage | None:
        """Return the page at an address, an older version of it as long as it is not due.

        Args:
            address: Name that no other page has.
            tag: Version of its documents now.
            make: Function that makes the page; None: there is none.
        """
        with self._lock:
            kept = self._kept.get(address)
            if kept is not None:
                is_due = self.pace.is_due(address, made_s=kept.made_s, took_s=kept.took_s)
                if kept.tag == tag or not is_due:
                    return kept
                # The old page is marked as new, so that other requests get it while one makes the
                # next.
                self._kept[address] = replace(kept, made_s=self.pace.clock())
        began_s = time.thread_time()
        html = make()
        if html is None:
            return None
        page = KeptPage(html, tag, self.pace.clock(), time.thread_time() - began_s)
        with self._lock:
            self._kept.pop(address, None)
            self._kept[address] = page
            while len(self._kept) > MAX_PAGES:
                del self._kept[next(iter(self._kept))]
        return page
