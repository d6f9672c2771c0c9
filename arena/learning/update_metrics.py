"""Metrics of updates: of the optimizer steps of one rollout, and of all updates of an assignment.

Tests: `tests/arena/learners/work/test_mean_metrics.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from arena.normalization import Exchange, all_of

NORM = "gradient/norm"

LOSSES = ("loss/policy", "loss/value", "loss/total", "policy/entropy", NORM)
"""Means over the rollout's optimizer steps."""

DIAGNOSTICS = ("policy/kl", "policy/clip_fraction")
"""Means over the last epoch: how far the policy has come from the one that played."""

KL_MAX = "policy/kl_max"
"""The KL divergence of an update, of which the highest counts: one may destroy a policy."""

RATIOS = ("policy/ratio_min", "policy/ratio_max")
"""Lowest and highest probability ratio of a decision in any of the rollout's optimizer steps."""

ADVANTAGES = ("advantage/min", "advantage/max")
"""Lowest and highest advantage of a rollout before normalization, in units of reward."""

METRICS = LOSSES + DIAGNOSTICS + RATIOS

LOWEST = frozenset({RATIOS[0], ADVANTAGES[0]})
"""Metrics of which the lowest value counts, where others have a mean."""

HIGHEST = frozenset({KL_MAX, RATIOS[1], ADVANTAGES[1]})
"""Metrics of which the highest value counts."""

MAGNET_KL = "policy/magnet_kl"
"""Metric of a policy that has a magnet; a mean over the rollout's optimizer steps."""

OLD_KL = "policy/old_kl"
"""Metric of a policy whose loss holds it near the old one; a mean likewise."""


LAST = frozenset({"optimizer/learning_rate", "optimizer/updates"})
"""Metrics of which the last value is reported: a schedule or a counter has no mean."""


class UpdateMetrics:
    """Metrics of the optimizer steps of one rollout.

    Args:
        names: Names of a step's numbers, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.skipped = 0
        self._names = names
        self._advantages: dict[str, float] = {}
        self._earlier: list[list[float]] = []
        self._epoch: list[list[float]] = []

    def add_rollout(self, advantage: torch.Tensor, *, exchange: Exchange | None = None) -> None:
        """Note the range of a rollout's advantages, float32 [D].

        Args:
            advantage: Advantages of this rank; D > 0 without others.
            exchange: Way to the other ranks, whose advantages count, too. None: there are none.
        """
        bounds = advantage.aminmax() if len(advantage) else (math.inf, -math.inf)
        numbers = [float(bound) for bound in bounds]
        if exchange is not None:
            rows = all_of(exchange, *numbers)
            numbers = [float(rows[:, 0].amin()), float(rows[:, 1].amax())]
        if all(map(math.isfinite, numbers)):
            self._advantages = dict(zip(ADVANTAGES, numbers, strict=True))

    def begin_epoch(self) -> None:
        """Begin an epoch, perhaps the last one."""
        # Epochs are kept apart, because diagnostics are those of the last one.
        self._earlier += self._epoch
        self._epoch = []

    def add(self, metrics: list[float] | None) -> None:
        """Count one step: numbers in the order of the names, or None for a skipped one."""
        if metrics is None:
            self.skipped += 1
        else:
            self._epoch.append(metrics)

    def results(self) -> dict[str, float]:
        """Return means over all steps, for DIAGNOSTICS over the last epoch; none without steps.

        RATIOS are the lowest and the highest of all steps, ADVANTAGES those of the rollout.
        """
        results = self._by_column(self._earlier + self._epoch)
        last = self._by_column(self._epoch)
        results = {name: value for name, value in results.items() if name not in DIAGNOSTICS}
        results |= {name: last[name] for name in DIAGNOSTICS if name in last}
        if DIAGNOSTICS[0] in last:
            results[KL_MAX] = last[DIAGNOSTICS[0]]
        return results | self._advantages

    def _by_column(self, steps: Sequence[Sequence[float]]) -> dict[str, float]:
        # There are no columns and no means without steps: a zero would be published as if it were
        # measured.
        columns = zip(*steps, strict=True)
        return {
            name: _one_of(name, column)
            for name, column in zip(self._names, columns, strict=bool(steps))
        }


def _one_of(name: str, column: Sequence[float]) -> float:
    if name in LOWEST:
        return min(column)
    return max(column) if name in HIGHEST else math.fsum(column) / len(column)


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
