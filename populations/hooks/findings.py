"""Findings of measurements, sinks, hooks and exports, from which alerts are made."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One measurement.

    Attributes:
        kind: Kind of the alert.
        subject: A population, a sink, or empty: the run.
        source: Policy or other source that was measured; one wrong source keeps the subject wrong.
        what: Trouble in words, with numbers; empty: all is well.
        advice: Remedy of this very trouble; empty: that of its kind.
    """

    kind: str
    subject: str
    source: str
    what: str
    advice: str = ""
