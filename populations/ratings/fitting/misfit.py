"""Tests of the fit: are the results what the ratings promise?

Three tests, each against chance: of all pairs, of the bend, and of the pairs with an anchor.
What is not known of the bend, and what the last one finds, widen intervals.

Sources: Rao, "Large sample tests of statistical hypotheses concerning several parameters"
(Proceedings of the Cambridge Philosophical Society, 1948); Cochran, "Some methods for strengthening
the common chi-squared tests" (Biometrics, 1954); Satterthwaite, "An approximate distribution of
estimates of variance components" (Biometrics, 1946); Wilson and Hilferty, "The distribution of
chi-square" (PNAS, 1931).

Shapes: M rows of results; Q pairs of entrants; N entrants.
"""

from __future__ import annotations

import math

import numpy as np

from populations.ratings.fitting.bend import bent_by
from populations.ratings.fitting.newton import Solver
from populations.ratings.fitting.pair_errors import PairFit
from populations.ratings.fitting.posterior import (
    BoolArray,
    FloatArray,
    IntArray,
    Problem,
    by_parameter,
    differences,
    log_odds,
    logistic,
)

# (400 / ELO_PER_UNIT)^2
MAX_PAIR_VARIANCE = 5.3
"""Upper limit of sigma^2 and alpha^2, that of 400 Elo: with more, ratings would explain nothing and
pairs everything.
"""

MISFIT = 3.0
"""Standard deviations of a misfit below which chance is to blame (once in 700 fits)."""

DOUBT = 2.0
"""Standard deviations from which on an anchor is in doubt: an interval that is too wide once in 40
fits that hold is better than one that is too narrow in those that do not.
"""

PRIOR_BEND = 0.25
"""Prior deviation of the bend: that of real games is -0.7 to 0.6 and clear, that of exact ones 0.
"""

MIN_EXPECTED = 1.0
"""Least information of a pair in the test of the fit, after Cochran's rule of one expected event.

A single win of the random bot in a hundred matches happens now and then, but its squared error is
thirty times the variance that the fit expects.
"""

MIN_LEFT = 0.1
"""Least share of a pair's information left for the test: a fit agrees with the pairs that it rests
on.
"""


def misfit_of(squares: FloatArray, *, left: FloatArray) -> float:
    """Standardize squared errors over chance as a chi-squared variable; 0 where there are none."""
    freedom = float(left.sum())
    return 0.0 if freedom < 1.0 else _above_chance(float(squares.sum()) / freedom, freedom=freedom)


def _above_chance(surprise: float, *, freedom: float) -> float:
    """Standardize a chi-squared variable over its degrees of freedom.

    Source: Wilson and Hilferty, "The distribution of chi-square" (PNAS, 1931).
    """
    # (X / k)^(1/3) is nearly normal with mean 1 - 2 / 9k and variance 2 / 9k.
    spread = 2.0 / (9.0 * freedom)
    return (math.pow(surprise, 1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)


def bend_of(
    problem: Problem, solver: Solver, *, summed: FloatArray
) -> tuple[float, float, FloatArray]:
    """Take one Newton step of the bend b, at the mode of all else.

    At b = 0 this is Rao's test of a bend, with what the ratings took over of it taken off: dh/db
    less its projection.

    Args:
        problem: Problem of the fit.
        solver: Solver with the curvature there.
        summed: d of each term. float64 [T].

    Returns:
        b, its standard deviation, and the change of the parameters with b [P].
    """
    num_rows = len(problem.matches)
    ahead, slopes = (told[:num_rows] for told in log_odds(problem, summed))
    expected, information = logistic(ahead)
    known = problem.weights * problem.matches * information
    by_bend = bent_by(summed[:num_rows], problem.bend)
    # X (X^T A X + priors)^-1 X^T A g, with A the information
    absorbed = solver.solve(by_parameter(problem, known * slopes * by_bend), tolerance=1e-6)
    left = by_bend - slopes * differences(problem, absorbed)[:num_rows]
    # Rounding puts it below 0 where the ratings explain any bend, or nobody is ahead.
    told = max(float((known * by_bend) @ left), 0.0) + PRIOR_BEND**-2
    surplus = problem.weights * (problem.scores - problem.matches * expected)
    pull = float(surplus @ left) - problem.bend * PRIOR_BEND**-2
    return problem.bend + pull / told, 1.0 / math.sqrt(told), -absorbed


def anchor_variance(
    fit: PairFit, *, is_anchored: BoolArray, variances: FloatArray
) -> tuple[float, float]:
    """Estimate alpha^2, by which results against anchors are off the ratings, and test it.

    A rating rests on all matches, and is read as a score against the anchor, one opponent of many.
    A style that is good against random play alone is a small part of all pairs' errors. Of a pair's
    squared error, (1 - h) phi I is chance, and (gamma d I)^2 due to an unknown scale. Moments and
    test weigh pairs by their information: whose distance matters has met the anchor most.

    Args:
        fit: Residuals of the pairs.
        is_anchored: Pairs in which an anchor plays. bool [Q].
        variances: v: of the difference of each pair's ratings, units of theta. float64 [Q].

    Returns:
        alpha^2 in units of theta, and the standard deviations by which the squared errors are above
        what is explained (Satterthwaite's degrees of freedom). 0 where there is too little.
    """
    # h = v / (phi / I + v), what the ratings took over from the pair itself.
    left = 1.0 - variances * fit.information / (fit.dispersion + variances * fit.information)
    used = is_anchored & (fit.information >= MIN_EXPECTED) & (left >= MIN_LEFT)
    if not used.any():
        return 0.0, 0.0
    error, information = fit.error[used], fit.information[used]
    explained = left[used] * fit.dispersion[used] * information
    # A sum of a_i X_i, with X_i chi-squared, has the mean sum(a) and the variance 2 sum(a^2).
    freedom = float(explained.sum()) ** 2 / float((explained**2).sum())
    surprise = float((error**2).sum()) / float(explained.sum())
    # alpha^2 = sum (e^2 - explained) / sum (1 - h) I^2
    excess = float((error**2 - explained).sum()) / float((left[used] * information**2).sum())
    return min(max(excess, 0.0), MAX_PAIR_VARIANCE), _above_chance(surprise, freedom=freedom)


def anchor_errors(
    fit: PairFit, *, entrants: IntArray, signs: FloatArray, num_entrants: int, variance: float
) -> FloatArray:
    """Estimate by how much each entrant's results against anchors are off what the fit says.

    An entrant's error has the prior N(0, alpha^2), and its own matches with the anchor tell it: its
    precision is 1 / alpha^2 + A and its mean B / precision, with A the sum of I / phi and B that of
    e / phi over its pairs with an anchor.

    Args:
        fit: Residuals of the pairs.
        entrants: Entrant of each pair with an anchor, elsewhere ``num_entrants`` or more. int64
            [Q].
        signs: 1 where that is the pair's first, else -1. float64 [Q].
        num_entrants: N.
        variance: alpha^2, in units of theta.

    Returns:
        Means and standard deviations, in units of theta. float64 [2, N].
    """
    if variance <= 0.0:
        return np.zeros((2, num_entrants))
    places = np.minimum(entrants, num_entrants)

    def by_entrant(values: FloatArray) -> FloatArray:
        sums = np.bincount(places, values, minlength=num_entrants + 1)
        return np.asarray(sums[:num_entrants], dtype=np.float64)

    precision = 1.0 / variance + by_entrant(fit.information / fit.dispersion)
    mean = by_entrant(signs * fit.error / fit.dispersion) / precision
    return np.stack([mean, np.sqrt(1.0 / precision)])
