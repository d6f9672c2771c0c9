"""Sums up the optimizer steps of one rollout into metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

LOSSES = ("loss/policy", "loss/value", "loss/total", "policy/entropy", "gradient/norm")
"""Means over the rollout's optimizer steps."""

DIAGNOSTICS = ("policy/kl", "policy/clip_fraction")
"""Means over the last epoch: how far the policy has come from the one that played."""

METRICS = LOSSES + DIAGNOSTICS

MAGNET_KL = "policy/magnet_kl"
"""Metric of a policy that has a magnet; a mean over the rollout's optimizer steps."""

OLD_KL = "policy/old_kl"
"""Metric of a policy whose loss holds it near the old one; a mean likewise."""


class UpdateMetrics:
    """Metrics of the optimizer steps of one rollout.

    Args:
        names: Names of a step's numbers, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.skipped = 0
        self._names = names
        self._earlier: list[list[float]] = []
        self._epoch: list[list[float]] = []

    def begin_epoch(self) -> None:
        """Begin an epoch, perhaps the last one."""
        # Kept apart: diagnostics are those of the last epoch.
        self._earlier += self._epoch
        self._epoch = []

    def add(self, metrics: list[float] | None) -> None:
        """Count one step: numbers in the order of the names, or None for a skipped one."""
        if metrics is None:
            self.skipped += 1
        else:
            self._epoch.append(metrics)

    def means(self) -> dict[str, float]:
        """Return means over all steps, for DIAGNOSTICS over the last epoch; none without steps."""
        everything = self._column_means(self._earlier + self._epoch)
        last = self._column_means(self._epoch)
        means = {name: mean for name, mean in everything.items() if name not in DIAGNOSTICS}
        return means | {name: last[name] for name in DIAGNOSTICS if name in last}

    def _column_means(self, steps: Sequence[Sequence[float]]) -> dict[str, float]:
        # No steps have no columns and no means: a zero would be published as if it were measured.
        columns = zip(*steps, strict=True)
        return {
            name: math.fsum(column) / len(steps)
            for name, column in zip(self._names, columns, strict=bool(steps))
        }
