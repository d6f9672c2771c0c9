"""The page of alerts."""

from __future__ import annotations

from docs.generate.markdown import code, table
from populations.controller.indexes.alert_kinds import KINDS
from populations.controller.server.live_status import (
    STALLED,
    STALLED_ADVICE,
    STORAGE,
    STORAGE_ADVICE,
)

# The storage alert has no measured value: the pause of a run is the alert itself.
STORAGE_ROW = (
    code(STORAGE),
    "The disk refuses durable data; not a kind for `alerts.fail`.",
    "There is room.",
    STORAGE_ADVICE,
)
STALLED_ROW = (
    code(STALLED),
    "Nothing finishes any more: the run waits and tries again; not a kind for `alerts.fail`.",
    "Anything finishes.",
    STALLED_ADVICE,
)


def page() -> str:
    """Return the table of alerts."""
    rows = [(code(name), kind.begins, kind.ends, kind.advice) for name, kind in KINDS.items()]
    return table(["kind", "begins", "is over", "advice"], [*rows, STORAGE_ROW, STALLED_ROW])
