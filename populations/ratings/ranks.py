"""What ratings do not say by themselves: how sure the ranks are, and how cyclic the game is.

Source of the split: Jiang, Lim, Yao and Ye, "Statistical ranking and combinatorial Hodge theory"
(Mathematical Programming, 2011); used on agents by Balduzzi et al., "Re-evaluating evaluation"
(NeurIPS, 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from populations.core import E, Result
from populations.ratings.bradley_terry import Z95

FloatArray = npt.NDArray[np.float64]


def rank_intervals(ratings: FloatArray, *, covariance: FloatArray) -> list[tuple[int, int]]:
    """Best and worst rank that each entrant may have; 1 is the best.

    A pair is ordered where the 95% interval of its difference leaves out 0. Two intervals against
    the anchor would overlap more often than they should, because their errors go together.

    Args:
        ratings: Elo. Shape [N].
        covariance: Elo squared. Shape [N, N].
    """
    variance = np.diag(covariance)
    deviation = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 0.0))
    is_better = ratings[:, None] - ratings[None, :] > Z95 * deviation
    num_better = is_better.sum(axis=0)
    num_worse = is_better.sum(axis=1)
    return [
        (1 + int(better), len(ratings) - int(worse))
        for better, worse in zip(num_better, num_worse, strict=True)
    ]


def pair_log_odds(
    results: Iterable[Result[E]], *, entrants: Sequence[E]
) -> tuple[FloatArray, FloatArray]:
    """Log-odds of each pair's score, seats and orders put together.

    Returns:
        Antisymmetric log-odds [N, N] of the posterior mean score (draws half, Jeffreys prior), and
        symmetric matches played [N, N].
    """
    index = {entrant: i for i, entrant in enumerate(entrants)}
    score = np.zeros((len(index), len(index)))
    for result in results:
        i, j = index[result.first], index[result.second]
        score[i, j] += result.wins + 0.5 * result.draws
        score[j, i] += result.losses + 0.5 * result.draws
    return np.log((score + 0.5) / (score.T + 0.5)), score + score.T


def cyclicity(advantages: FloatArray, *, weights: FloatArray | None = None) -> float:
    """Share of what happens between players that no rating can express.

    Rock, paper, scissors: 1. A game in which log-odds are differences of ratings: 0. Advantages are
    split into f_i - f_j, f by weighted least squares, and the rest.

    Args:
        advantages: Antisymmetric: by how much i is ahead of j. Shape [N, N].
        weights: Symmetric, at least 0; 0 for pairs that never met. Shape [N, N]. None: all 1.

    Returns:
        In [0, 1]; 0 where nobody is ahead of anybody.

    Raises:
        ValueError: If ``advantages`` is not antisymmetric.
    """
    if not np.allclose(advantages, -advantages.T):
        raise ValueError("advantages must be antisymmetric")
    size = len(advantages)
    shares = np.ones((size, size)) if weights is None else weights.copy()
    np.fill_diagonal(shares, 0.0)
    total = float((shares * advantages**2).sum())
    if total <= 0.0:
        return 0.0
    # Normal equations: the graph's Laplacian, singular along constants of each connected part.
    laplacian = np.diag(shares.sum(axis=1)) - shares
    potential = np.linalg.pinv(laplacian, hermitian=True) @ (shares * advantages).sum(axis=1)
    rest = advantages - (potential[:, None] - potential[None, :])
    return float(np.clip((shares * rest**2).sum() / total, 0.0, 1.0))
