"""Numbers that the ranks of a learner give each other, and statistics over the rows of all of them.

Ranks are processes that carry out one assignment together: each plays its share of the environments
and averages its gradients with the others' (`arena.learners.ranks`). Shapes: N ranks, K numbers, F
features.

Tests: `tests/arena/test_exchange.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Exchange = Callable[[torch.Tensor], torch.Tensor]
"""Function that gives the other ranks [K] numbers and returns those of all, [N, K], in the order of
ranks. All of them call it with the same K and dtype. The result holds until the next call."""


def all_of(exchange: Exchange, *numbers: float) -> torch.Tensor:
    """Return some numbers of each rank. float64 [N, K]."""
    return exchange(torch.tensor(numbers, dtype=torch.float64)).clone()


def merged_moments(
    counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and biased variance over the rows of all ranks. float64 [F] each.

    Args:
        counts: Number of rows of each rank, not all 0. float64 [N].
        means: Mean over these; anything finite without rows. float64 [N, F].
        variances: Biased variance over them; likewise. float64 [N, F].
    """
    # n_r / n
    share = (counts / counts.sum()).unsqueeze(1)
    mean = (share * means).sum(dim=0)
    # v = sum of n_r / n (v_r + (m_r - m)^2)
    return mean, (share * (variances + (means - mean).square())).sum(dim=0)


def exchanged_moments(
    exchange: Exchange, num_rows: int, moments: Callable[[], Sequence[torch.Tensor]], *, size: int
) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Return number, mean and biased variance of the rows of all ranks.

    Args:
        exchange: Way to the other ranks.
        num_rows: Number of rows of this rank.
        moments: Function that returns their mean and biased variance, [F] each; it is not called
            without rows.
        size: F.

    Returns:
        The number, and float64 [F] each; zeros without any row.
    """
    own = torch.zeros(1 + 2 * size, dtype=torch.float64)
    if num_rows:
        mean, variance = moments()
        own[0], own[1 : 1 + size], own[1 + size :] = num_rows, mean, variance
    rows = exchange(own)
    counts = rows[:, 0]
    total = int(counts.sum())
    if not total:
        return 0, own[1 : 1 + size], own[1 + size :]
    mean, variance = merged_moments(counts, rows[:, 1 : 1 + size], rows[:, 1 + size :])
    return total, mean, variance
