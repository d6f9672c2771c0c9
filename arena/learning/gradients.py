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

NOTHING = torch.zeros(1)
"""Head of a rank without rows."""


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
    with torch.no_grad():
        own = [] if loss is None else [*loss.terms, *loss.diagnostics]
        head = torch.stack([torch.tensor(float(num_rows)), *own]) if own else NOTHING
    found: dict[str, float] = {}

    def average(gradient: Sequence[torch.Tensor]) -> torch.Tensor:
        rows = exchange(torch.cat([head.expand(1 + len(of_loss)), *gradient]))
        # Python's numbers have 64 bits, in each rank the same.
        heads: list[list[float]] = rows[:, : 1 + len(of_loss)].tolist()
        # n_r / n
        num_all = sum(one[0] for one in heads)
        share = [one[0] / num_all for one in heads]
        for at, name in enumerate(of_loss, start=1):
            column = [one[at] for one in heads if one[0]]
            if name in LOWEST or name in HIGHEST:
                found[name] = (min if name in LOWEST else max)(column)
            else:
                parts = zip(share, heads, strict=True)
                found[name] = sum(weight * one[at] for weight, one in parts if one[0])
        gradients = rows[:, 1 + len(of_loss) :]
        total = gradients[0] * share[0]
        # Whole rows one after the other: a product of matrices could round otherwise in a rank
        # whose memory begins elsewhere.
        for row, weight in zip(gradients[1:], share[1:], strict=True):
            total.add_(row, alpha=weight)
        return total

    total = None if loss is None else loss.total
    found[NORM] = float(optimizer.compute_gradients(total, max_norm=max_norm, average=average))
    return [found[name] for name in names]
