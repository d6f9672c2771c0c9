"""Findings of measurements, sinks, hooks and exports, from which alerts are made."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Result of one measurement, which may begin or end an alert.

    Attributes:
        kind: Kind of the alert.
        subject: Population, sink or hook that the alert is about; empty: the run.
        source: Policy or other source that was measured; the alert lasts while any source is wrong.
        what: Problem in words, with numbers; empty: there is no problem.
        advice: Remedy for this problem; empty: the general advice of the alert's kind.
    """

    kind: str
    subject: str
    source: str
    what: str
    advice: str = ""
