"""The gradient of a minibatch whose rows are divided among the ranks of a learner.

Tests: `tests/arena/learning/test_ranks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arena.exchange import Exchange
from arena.learning.optimizer import NamedAdam
from arena.learning.ppo_loss import PpoLoss
from arena.learning.update_metrics import HIGHEST, LOWEST, NORM


def average_gradients(
    optimizer: NamedAdam,
    loss: PpoLoss | None,
    *,
    num_rows: int,
    names: Sequence[str],
    max_norm: float,
    exchange: Exchange,
) -> list[float]:
    """Compute the gradient of a minibatch of all ranks, the same bits in each of them.

    A loss is a mean over rows, so each rank weighs by its rows in the minibatch.

    Args:
        optimizer: Optimizer that takes the gradient.
        loss: Loss over this rank's rows; None: it has none.
        num_rows: Number of these.
        names: Names of a step's numbers.
        max_norm: Norm down to which a longer gradient is scaled.
        exchange: Way to the other ranks, at least one of which has rows.

    Returns:
        Numbers of the step over the rows of all ranks, in the order of their names.
    """
    of_loss = [name for name in names if name != NORM]
    head = torch.zeros(1 + len(of_loss))
    if loss is not None:
        with torch.no_grad():
            own = torch.stack([*loss.terms, *loss.diagnostics])
        head[0], head[1:] = num_rows, own
    found: dict[str, float] = {}

    def average(gradient: torch.Tensor) -> torch.Tensor:
        rows = exchange(torch.cat([head, gradient]))
        # n_r / n
        share: list[float] = (rows[:, 0] / rows[:, 0].sum()).tolist()
        total = rows[0] * share[0]
        # Whole rows one after the other: a product of matrices could round otherwise in a rank
        # whose memory begins elsewhere.
        for row, weight in zip(rows[1:], share[1:], strict=True):
            total.add_(row, alpha=weight)
        present = rows[rows[:, 0] > 0, 1 : len(head)]
        means = total[1 : len(head)].tolist()
        low, high = present.amin(dim=0).tolist(), present.amax(dim=0).tolist()
        for at, name in enumerate(of_loss):
            found[name] = (low if name in LOWEST else high if name in HIGHEST else means)[at]
        return total[len(head) :]

    total = None if loss is None else loss.total
    found[NORM] = float(optimizer.compute_gradients(total, max_norm=max_norm, average=average))
    return [found[name] for name in names]
