"""The log posterior of Bradley-Terry ratings as arrays: its value, gradient and curvature.

The parameters are theta of every free entrant, one advantage per pair of seats, and eta (see
`populations.ratings.bradley_terry`). Every match row and every prior is a *term* about a signed sum
of at most four parameters, and the negated Hessian is J.T @ J, with a row of J for each term and
one more for what is left of eta. A row of results with per-match covariance [[v, c], [c, t]] of
(half the score's surplus, draw) has the Cholesky row sqrt(v) * (d + (c / v) * eta), and its rest
sqrt(t - c^2 / v) is about eta alone.

Shapes: P parameters, eta the last; M match rows; T terms, the M rows first, then the priors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SIGNS = np.array([1.0, -1.0, 1.0, 0.0])
"""Of first, second, advantage, eta in a match row; of a prior's parameter and its mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A posterior.

    Attributes:
        num_parameters: P.
        index: Parameters of each term; P stands for the constant 0 (anchors, fixed means). Match
            rows: first, second, advantage, eta. Priors: parameter, its mean, P, P. int64 [T, 4].
        counts: Wins, draws and losses of the match rows. float64 [M, 3].
        precisions: Of the priors, in units of theta. float64 [T - M].
    """

    num_parameters: int
    index: IntArray
    counts: FloatArray
    precisions: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature:
    """The negated Hessian at a point: J.T @ diag(weights) @ J plus ``rest`` for eta.

    Attributes:
        coefficients: Of each term's parameters. float64 [T, 4].
        weights: float64 [T].
        rest: Added to eta's own entry.
    """

    coefficients: FloatArray
    weights: FloatArray
    rest: float


def evaluate(problem: Problem, parameters: FloatArray) -> tuple[float, FloatArray, Curvature]:
    """Log density up to a constant, its gradient [P], and its curvature."""
    size, index, counts = problem.num_parameters, problem.index, problem.counts
    num_rows = len(counts)
    padded = np.append(parameters, 0.0)
    half = 0.5 * (padded[index[:num_rows, :3]] @ SIGNS[:3])
    log_norm, (win, draw, loss) = outcome_probabilities(half, eta=float(parameters[-1]))
    wins, draws, losses = counts.T
    matches = wins + draws + losses
    log_likelihood = half @ (wins - losses) + parameters[-1] * draws.sum() - log_norm @ matches
    step = padded[index[num_rows:, 0]] - padded[index[num_rows:, 1]]
    pull = problem.precisions * step
    value = float(log_likelihood - 0.5 * (step @ pull))

    # Sufficient statistics: wins - losses for d / 2, the number of draws for eta.
    surplus = 0.5 * (wins - losses - matches * (win - loss))
    gradient = np.zeros(size + 1)
    for column, sign in enumerate(SIGNS[:3]):
        gradient += sign * np.bincount(index[:num_rows, column], surplus, minlength=size + 1)
    for column, sign in enumerate(SIGNS[:2]):
        gradient -= sign * np.bincount(index[num_rows:, column], pull, minlength=size + 1)
    gradient[size - 1] += float((draws - matches * draw).sum())

    # 4 v = win + loss - (win - loss)^2, written without a difference of nearly equal numbers.
    spread = draw * (win + loss) + 4.0 * win * loss
    slope = np.divide(
        -2.0 * (win - loss) * draw, spread, out=np.zeros_like(spread), where=spread > 0.0
    )
    rest = matches * (draw * (1.0 - draw) - 0.25 * spread * slope**2)
    coefficients = np.broadcast_to(SIGNS, (len(index), 4)).copy()
    coefficients[:num_rows, 3] = slope
    weights = np.concatenate([0.25 * matches * spread, problem.precisions])
    curvature = Curvature(
        coefficients=coefficients, weights=weights, rest=float(np.maximum(rest, 0.0).sum())
    )
    return value, gradient[:size], curvature


def outcome_probabilities(half: FloatArray, *, eta: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities of win, draw and loss [3, M] for halved differences ``half`` [M] of theta.

    Returns:
        The logarithm of exp(half) + exp(eta) + exp(-half) [M], and the probabilities.
    """
    highest = np.maximum(np.abs(half), eta)
    powers = np.exp(np.stack([half, np.full_like(half, eta), -half]) - highest)
    norm = powers.sum(axis=0)
    return highest + np.log(norm), powers / norm
