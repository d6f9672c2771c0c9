"""The log posterior of Bradley-Terry ratings as arrays: its value, gradient and curvature.

The parameters are theta of every free entrant, one advantage per pair of seats, the stages of
learning, and the recency (see `populations.ratings.bradley_terry`). Every match row, prior and link
is a *term* about a signed sum of at most four parameters: of rows and links a distance d, of which
results say the log-odds h(d) (`populations.ratings.fitting.bend`). The expected negated Hessian is
J.T @ diag(weights) @ J, where J has a row of signs for each term.

Shapes: P parameters; M match rows; T terms, the M rows first, then the P priors, then the links.

Tests: `tests/populations/ratings/test_bradley_terry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from populations.ratings.fitting.bend import bent

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROW_SIGNS = np.array([1.0, -1.0, 1.0])
"""Signs of first, second and advantage in a match row; that of the recency is `Problem.newer`."""

PRIOR_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
"""Signs of a prior's parameter, its mean, the parameter's stage and the mean's stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Posterior as arrays.

    Attributes:
        num_parameters: P.
        index: Parameters of each term; P stands for the constant 0 (anchors, fixed means). Match
            rows: first, second, advantage, recency. Priors: see ``PRIOR_SIGNS``. Links: first,
            second, P, P. int64 [T, 4].
        matches: Matches of each row. float64 [M].
        scores: Sums of the scores of ``first``, a draw half, in [0, matches]. float64 [M].
        weights: Information of a row's match relative to that of a win or a loss. float64 [M].
        precisions: Precisions of the priors and links, in units of theta. float64 [T - M].
        means: Means of their signed sums, 0 of priors. float64 [T - M].
        newer: By how much the first of each row is newer, in [-1, 1]
            (`populations.ratings.fitting.bend.newer`). float64 [M].
        groups: Group of parameters that move together, -1 for none; it speeds up sparse solvers and
            changes nothing else. int64 [P].
        bend: b of h. 0: distances are log-odds.
    """

    num_parameters: int
    index: IntArray
    matches: FloatArray
    scores: FloatArray
    weights: FloatArray
    precisions: FloatArray
    means: FloatArray
    newer: FloatArray
    groups: IntArray
    bend: float = 0.0

    @property
    def signs(self) -> FloatArray:
        """Signs of each term's parameters. float64 [T, 4]."""
        num_rows = len(self.matches)
        signs = np.empty(self.index.shape)
        signs[:num_rows, :3], signs[num_rows:] = ROW_SIGNS, PRIOR_SIGNS
        signs[:num_rows, 3] = self.newer
        return signs


def differences(problem: Problem, parameters: FloatArray) -> FloatArray:
    """Return the signed sum of each term's parameters: of rows and links, d. float64 [T]."""
    padded = np.append(parameters, 0.0)
    num_rows = len(problem.matches)
    values = padded[problem.index[:num_rows]]
    rows = values[:, :3] @ ROW_SIGNS + values[:, 3] * problem.newer
    return np.concatenate([rows, padded[problem.index[num_rows:]] @ PRIOR_SIGNS])


def log_odds(problem: Problem, summed: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return h(d) of rows and links and the sums of priors, with their slopes. float64 [T]."""
    found, slopes = summed.copy(), np.ones(len(summed))
    if problem.bend:
        num_rows = len(problem.matches)
        for told in (slice(0, num_rows), slice(num_rows + problem.num_parameters, None)):
            found[told], slopes[told] = bent(summed[told], problem.bend)
    return found, slopes


def evaluate(problem: Problem, parameters: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the log density up to a constant, its gradient [P], and the curvature's
    weights [T].
    """
    size, index, num_rows = problem.num_parameters, problem.index, len(problem.matches)
    told, slopes = log_odds(problem, differences(problem, parameters))
    ahead, step = told[:num_rows], told[num_rows:] - problem.means
    expected, information = logistic(ahead)
    # log L = w (s h - n log(1 + e^h)) - 1/2 precision step^2
    log_likelihood = problem.scores * ahead - problem.matches * np.logaddexp(0.0, ahead)
    pull = problem.precisions * step
    value = float(problem.weights @ log_likelihood - 0.5 * (step @ pull))

    # d log L / dd = w (s - n p) h'
    surplus = problem.weights * (problem.scores - problem.matches * expected)
    gradient = _gathered(problem, surplus * slopes[:num_rows])
    pull *= slopes[num_rows:]
    for column, sign in enumerate(PRIOR_SIGNS):
        gradient -= sign * np.bincount(index[num_rows:, column], pull, minlength=size + 1)
    # E(-d^2 log L / dd^2) = w n p (1 - p) h'^2; of a prior, its precision.
    curvature = np.concatenate(
        [problem.weights * problem.matches * information, problem.precisions]
    )
    return value, gradient[:size], curvature * slopes**2


def by_parameter(problem: Problem, values: FloatArray) -> FloatArray:
    """Add up values of match rows [M] by parameter, with the parameter's sign in each. [P]."""
    return _gathered(problem, values)[: problem.num_parameters]


def _gathered(problem: Problem, values: FloatArray) -> FloatArray:
    size, num_rows = problem.num_parameters, len(problem.matches)
    # The last cell collects what falls on the constant 0 and is cut off.
    sums = np.zeros(size + 1)
    for column, sign in enumerate((*ROW_SIGNS, problem.newer)):
        # bincount adds up repeated indices; sums[index] += would keep one of each.
        told = sign * values
        sums += np.bincount(problem.index[:num_rows, column], told, minlength=size + 1)
    return sums


def logistic(ahead: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the expected score p and p (1 - p) for log-odds [M], without overflow or
    cancellation.
    """
    # p = 1 / (1 + e^-d) for d >= 0 and e^d / (1 + e^d) below: the exponent is never positive.
    small = np.exp(-np.abs(ahead))
    norm = 1.0 + small
    return np.where(ahead >= 0.0, 1.0, small) / norm, small / norm**2
