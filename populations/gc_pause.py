"""Pauses of Python's cyclic garbage collector.

Tests: `tests/populations/league/test_league.py`.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector while the caller makes many objects that all stay alive.

    Searching them for garbage would take longer than making them.
    """
    # An outer pause, or a collector that the caller has turned off, stays as it was.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
