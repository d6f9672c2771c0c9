"""Running mean and variance, as buffers that are part of a policy's weights.

Batches are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances" (1979), and so are those of the ranks of a learner: processes that carry
out one assignment together, each with its share of the environments (`arena.learners.ranks`).
Shapes: N rows, or ranks; K numbers; F features (F is 1 for returns).

Tests: `tests/arena/test_normalization.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

Exchange = Callable[[torch.Tensor], torch.Tensor]
"""Function that sends [K] numbers to the other ranks and returns those of all, [N, K], in the order
of ranks. All ranks call it with the same K and dtype. The result is valid until the next call."""

RETURN_MEMORY = 20.0
"""Rollouts after which old returns fade from the statistics.

A policy's returns grow as it learns, and change with the weights of its reward. A value network in
outdated units learns slowly or not at all.

CartPole, 90,000 steps, three seeds, mean return at the end: with statistics of a policy that fell
at once, 178 to 360 if they never fade, 493 to 500 with 100 rollouts, 500 with 20; with fresh ones
450 to 500, and 500 with 20. Rescaling the value's last layer to preserve its predictions (PopArt;
van Hasselt et al., "Learning values across many orders of magnitude", 2016) was worse with 20
rollouts, 192 to 460 and 210 to 359: where returns grow, predictions that grow with them are the
better guess.
"""

EPSILON = 1e-8
"""Added to the variance, so that a constant feature becomes 0 and not NaN."""

MAX_COUNT = float(2**24)
"""Limit of the count: integers are exact in float32 up to here. Then old rows slowly fade."""

CHUNK_ROWS = 512
"""Rows summed in float32 before the sums are added up in float64; they fit a core's cache."""


class RunningNormalizer(nn.Module):
    """Running statistics of all batches of `update`, which alone changes them.

    Owned by the network it is part of.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int, *, clip: float | None = None, memory: float = math.inf) -> None:
        """Start as the identity.

        Args:
            size: F.
            clip: Limit of normalized values, which are clipped to [-clip, clip]. None: no limit.
            memory: Number of further batches after which a batch weighs 1/e of its initial weight.
        """
        super().__init__()
        self._clip = clip
        # kept^memory = 1/e; memory inf: kept = 1, so that all batches weigh by their rows
        self._kept = math.exp(-1.0 / memory)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros(1))

    @property
    def deviation(self) -> torch.Tensor:
        """Divisor of the normalization. float32 [F]."""
        return (self.variance + EPSILON).sqrt()

    def by_column(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and deviation of every column of a row, copied. float32 [F] each."""
        # The mean is copied, because a stack of frozen policies must not share a live network's
        # buffers.
        return self.mean.clone(), self.deviation

    def normalize(self, values: torch.Tensor) -> torch.Tensor:
        """Subtract the mean, divide by the deviation, clip. [N, F] to [N, F]."""
        # Normalizing never updates the statistics, so matches and evaluations change nothing.
        normalized = (values - self.mean) / self.deviation
        return normalized if self._clip is None else normalized.clamp(-self._clip, self._clip)

    def denormalize(self, values: torch.Tensor) -> torch.Tensor:
        """Undo `normalize`, except its clipping. [N, F] to [N, F]."""
        return values * self.deviation + self.mean

    @torch.no_grad()
    def update(self, values: torch.Tensor, *, exchange: Exchange | None = None) -> bool:
        """Merge a batch.

        Args:
            values: Batch of rows, float32 [N, F]. N may be 0 or 1.
            exchange: Connection to the other ranks, whose rows are part of the batch; None without
                other ranks.

        Returns:
            False if the batch was ignored, because it (or its square) is not finite in float32.
        """
        num_rows = values.shape[0]
        if exchange is not None:
            num_rows, batch_mean, batch_variance = exchanged_moments(
                exchange, num_rows, lambda: _moments(values), size=values.shape[1]
            )
        # The mean of no rows would be NaN.
        if num_rows == 0:
            return True
        if exchange is None:
            batch_mean, batch_variance = _moments(values)
        # In float32 a small batch would be lost beside 2**24 rows.
        count = self._kept * self.count.double()
        share = num_rows / (count + num_rows)
        delta = batch_mean - self.mean
        # With n as the batch's share of all rows: m' = m + n d, v' = (1 - n) v + n vb + n (1 - n)
        # d^2.
        mean = self.mean + share * delta
        variance = (1.0 - share) * self.variance
        variance += share * batch_variance + share * (1.0 - share) * delta.square()
        # Statistics are checked in float32, because float64 may be finite where float32 is not.
        mean, variance = mean.float(), variance.float()
        if not bool((mean.isfinite() & variance.isfinite()).all()):
            return False
        self.mean.copy_(mean)
        self.variance.copy_(variance)
        self.count.copy_((count + num_rows).clamp(max=MAX_COUNT))
        return True


def all_of(exchange: Exchange, *numbers: float) -> torch.Tensor:
    """Return the given numbers of all ranks. float64 [N, K]."""
    return exchange(torch.tensor(numbers, dtype=torch.float64)).clone()


def merged_moments(
    counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and biased variance over the rows of all ranks. float64 [F] each.

    Args:
        counts: Number of rows of each rank, not all 0. float64 [N].
        means: Mean of each rank's rows; any finite number without rows. float64 [N, F].
        variances: Biased variance of each rank's rows; likewise. float64 [N, F].
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


def _moments(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and biased variance over rows. float32 [N, F] to float64 [F] and [F]."""
    # Subtracting the first pass's mean keeps the sums of the second small enough for float32.
    rough = _mean_over_rows(values, square=False).float()
    shifted = values - rough
    shift = _mean_over_rows(shifted, square=False)
    # Var = E[s^2] - E[s]^2 of the shifted values s; rounding may leave it below 0
    variance = _mean_over_rows(shifted, square=True) - shift.square()
    return rough.double() + shift, variance.clamp(min=0.0)


def _mean_over_rows(values: torch.Tensor, *, square: bool) -> torch.Tensor:
    """Return the mean of the values or of their squares. float32 [N, F] to float64 [F]."""
    chunks = torch.split(values, CHUNK_ROWS)
    sums = [(chunk.square() if square else chunk).sum(dim=0) for chunk in chunks]
    return torch.stack(sums).double().sum(dim=0) / values.shape[0]
