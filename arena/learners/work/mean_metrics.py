"""The metrics of an assignment's updates, as one number for each name.

Tests: `tests/arena/learners/work/test_mean_metrics.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from arena.learning.update_metrics import HIGHEST, LOWEST

LAST = frozenset({"optimizer/learning_rate", "optimizer/updates"})
"""Metrics of which the last value is reported: a schedule or a counter has no mean."""


class MeanMetrics:
    """Means over updates, bounds and last values of some names, without non-finite numbers."""

    def __init__(self) -> None:
        self._sum: defaultdict[str, float] = defaultdict(float)
        self._count: defaultdict[str, int] = defaultdict(int)
        self._chosen: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of one update."""
        for name, value in metrics.items():
            # One step without a meaning (a ratio of zeros) does not cost the mean of the others.
            if not math.isfinite(value):
                continue
            if name in LAST:
                self._chosen[name] = value
            elif name in LOWEST:
                self._chosen[name] = min(self._chosen.get(name, value), value)
            elif name in HIGHEST:
                self._chosen[name] = max(self._chosen.get(name, value), value)
            else:
                self._sum[name] += value
                self._count[name] += 1

    def result(self) -> dict[str, float]:
        """Return one number for each name that had a finite one."""
        means = {name: total / self._count[name] for name, total in self._sum.items()}
        return means | self._chosen
