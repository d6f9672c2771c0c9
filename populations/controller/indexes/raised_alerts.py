"""Alerts that hold: raised when something was wrong as often as its kind says, and then cleared.

The journal has a row of each that holds (`AlertRow`), so they outlast the controller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from arena.types import PolicyId
from populations.controller.indexes.alert_kinds import KINDS
from populations.controller.indexes.measurements import Window
from populations.hooks.findings import Finding
from populations.records.rows import AlertRow, Json


class Alerts(Struct):
    """Alerts that hold, and what was measured lately. Owned by the controller's thread.

    Attributes:
        fail: Kinds that fail the run.
        raised: By kind and subject, what is wrong with whom.
        windows: Measurements of each policy.
        unended_s: By population, learner seconds of training since an episode ended.
        idle_at_s: When learners were last looked at.
        advice: By kind and subject, the remedy of the last finding; empty: that of the kind.
    """

    fail: Collection[str] = ()
    raised: dict[tuple[str, str], dict[str, str]] = {}
    windows: defaultdict[PolicyId, Window] = field(default_factory=lambda: defaultdict(Window))
    unended_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle_at_s: float = float("-inf")
    advice: dict[tuple[str, str], str] = {}
    _streaks: dict[tuple[str, str, str], int] = {}
    """Measurements in a row: above 0 of trouble, below 0 of none."""

    def documents(self) -> list[Json]:
        """Return alerts that hold, for programs and displays."""
        return [
            document(
                kind,
                subject,
                "; ".join(list(texts.values())[:3]),
                sources=list(texts),
                advice=self.advice.get((kind, subject), ""),
            )
            for (kind, subject), texts in self.raised.items()
        ]

    def measure(
        self,
        policy: PolicyId,
        population: str,
        metrics: Mapping[str, float],
        *,
        duration_s: float,
    ) -> None:
        """Take in an assignment."""
        self.windows[policy].record(metrics)
        ended = metrics.get("episode/count", 0.0) > 0.0
        self.unended_s[population] = 0.0 if ended else self.unended_s[population] + duration_s

    def record(self, finding: Finding) -> bool | None:
        """Take in a measurement.

        Returns:
            True if it makes an alert hold, or would if it did not already; False if it ends one.
        """
        kind, subject, source, what, advice = finding
        before = self._streaks.get((kind, subject, source), 0)
        streak = max(before, 0) + 1 if what else min(before, 0) - 1
        self._streaks[kind, subject, source] = streak
        texts = self.raised.get((kind, subject), {})
        # A source that is in the alert already updates its text at once.
        if what and (streak >= KINDS[kind].raise_after or source in texts):
            self.raised.setdefault((kind, subject), {})[source] = what
            self.advice[kind, subject] = advice
            # An alert is reported when it begins, and when a further source has been wrong as
            # often.
            return True if not texts or streak == KINDS[kind].raise_after else None
        if source in texts and -streak >= KINDS[kind].clear_after:
            return self.forget(kind, subject, source)
        return None

    def forget(self, kind: str, subject: str, source: str) -> bool | None:
        """Count somebody no more; False if that ends the alert."""
        self._streaks.pop((kind, subject, source), None)
        texts = self.raised.get((kind, subject), {})
        # Another source keeps the alert.
        if texts.pop(source, None) is None or texts:
            return None
        del self.raised[kind, subject]
        self.advice.pop((kind, subject), None)
        return False


def document(
    kind: str, subject: str, what: str, *, sources: Iterable[str] = (), advice: str = ""
) -> dict[str, Json]:
    """Return an alert as events, ``status.json`` and ``arena league RUN status`` have it."""
    return {
        "name": kind,
        "subject": subject,
        "what": what,
        "advice": advice or KINDS[kind].advice,
        "sources": list(sources),
    }


def resumed(rows: Iterable[AlertRow], *, fail: Collection[str] = ()) -> Alerts:
    """Return the alerts that hold when a controller goes on with a run.

    Args:
        rows: Those of the journal.
        fail: Kinds that fail the run.
    """
    alerts = Alerts(fail=fail)
    for row in rows:
        # The next measurement of the source replaces the text.
        alerts.raised[row.name, row.subject] = {row.source: row.what}
        alerts.advice[row.name, row.subject] = row.advice
    return alerts
