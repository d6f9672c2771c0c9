"""Pauses of Python's cyclic garbage collector.

Tests: `tests/populations/league/test_league.py`.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector while many objects are made that all stay alive.

    Its search for garbage among them would take longer than making them.
    """
    # Nested pauses, or a caller's own, are left as they were.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
