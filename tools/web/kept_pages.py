"""Pages as they were sent last, for all readers: made again when they are due.

Tests: `tests/tools/web/test_kept_pages.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock

from .pace import Pace

MAX_PAGES = 64
"""Pages that are kept, of some hundred kilobytes each: the ones that were looked at last."""


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
