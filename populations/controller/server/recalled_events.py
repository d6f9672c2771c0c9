"""Events that a resumed controller needs of those that have left the journal. Pure.

Tests: `tests/populations/controller/server/test_recalled_events.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from populations.controller.indexes.raised_alerts import raised_by
from populations.records.rows import EventRow


def recall(events: Sequence[EventRow]) -> list[EventRow]:
    """Return few events from which all that follows from many events follows, too.

    Args:
        events: Events from the run's first one to some point, or what was recalled of the older
            ones, and all since.

    Returns:
        Alerts that hold.
    """
    return [*raised_by(events).values()]
