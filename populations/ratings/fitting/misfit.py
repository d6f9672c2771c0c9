"""Tests of the fit: are the results what the ratings promise?

Three tests, each against chance: of all pairs, of the scale, and of the pairs with an anchor.
What the last two find widens intervals.

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

from populations.ratings.fitting.newton import Solver
from populations.ratings.fitting.pair_errors import PairFit
from populations.ratings.fitting.posterior import (
    BoolArray,
    FloatArray,
    IntArray,
    Problem,
    by_parameter,
    differences,
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
"""Standard deviations from which on a scale or an anchor is in doubt: an interval that is too wide
once in 40 fits that hold is better than one that is too narrow in those that do not.
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

MAX_PLAYERS = 300
"""Players, evenly drawn by strength, whose pairs stand for those of all."""


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


def scale_deviation(
    problem: Problem, solver: Solver, *, ahead: FloatArray, strengths: FloatArray
) -> tuple[float, float]:
    """Estimate by which share the scale is wrong, and test whether log-odds are bent.

    The model may be wrong as a whole, not only by pairs: where the better player errs in one match
    of twenty, whomever it meets, each step of a chain of results is right and their sum is too
    long. Log-odds are then bent: d + c d |d| shows where the ratings say d. This is Rao's test of
    c = 0, with what the ratings took over of such a bend taken off: g = d |d| less its projection.
    The scale is c s, with s the slope of d |d| over d; but it is fitted to the pairs that have met,
    most of them near, and meant for all pairs alike, whose slope is another one.

    Args:
        problem: Problem of the fit.
        solver: Solver with the curvature there.
        ahead: d of each match row. float64 [M].
        strengths: theta of each entrant. float64 [N].

    Returns:
        c times the difference of the slopes, and the standard deviations by which c is off 0.
    """
    expected, information = logistic(ahead)
    known = problem.weights * problem.matches * information
    surplus = problem.weights * (problem.scores - problem.matches * expected)
    bend = ahead * np.abs(ahead)
    # X (X^T A X + priors)^-1 X^T A g, with A the information
    absorbed = solver.solve(by_parameter(problem, known * bend), tolerance=1e-6)
    left = bend - differences(problem, absorbed)[: len(ahead)]
    variance = float(known @ (bend * left))
    # The ratings explain any bend, or nobody is ahead.
    if variance <= 0.0:
        return 0.0, 0.0
    surprise = abs(float(surplus @ left))
    some = np.sort(strengths)[:: 1 + len(strengths) // MAX_PLAYERS]
    everybody = np.abs(some[:, None] - some).ravel()
    of_all = _slope(everybody, weights=logistic(everybody)[1])
    of_met = _slope(np.abs(ahead), weights=known)
    return surprise / variance * abs(of_all - of_met), surprise / math.sqrt(variance)


def _slope(distances: FloatArray, *, weights: FloatArray) -> float:
    """Return the slope of squared distances over distances, by weighted least squares."""
    total = float(weights @ distances**2)
    return 0.0 if total <= 0.0 else float(weights @ distances**3) / total


def anchor_variance(
    fit: PairFit, *, is_anchored: BoolArray, variances: FloatArray, scale: float
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
        scale: gamma.

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
    expected = fit.won[used] - error
    distance = np.log((expected + 0.5) / (fit.played[used] - expected + 0.5))
    by_chance = left[used] * fit.dispersion[used] * information
    explained = by_chance + (scale * distance * information) ** 2
    # Of a sum of a_i X_i, with X_i chi-squared: mean sum(a), variance 2 sum(a^2).
    freedom = float(explained.sum()) ** 2 / float((explained**2).sum())
    surprise = float((error**2).sum()) / float(explained.sum())
    # alpha^2 = sum (e^2 - explained) / sum (1 - h) I^2
    excess = float((error**2 - explained).sum()) / float((left[used] * information**2).sum())
    return min(max(excess, 0.0), MAX_PAIR_VARIANCE), _above_chance(surprise, freedom=freedom)


def anchor_errors(
    fit: PairFit, *, entrant_of_pair: IntArray, num_entrants: int, variance: float
) -> FloatArray:
    """Return by how much each entrant's results against anchors may be off its rating.

    An entrant's error x has the prior N(0, alpha^2), and its own matches with the anchor tell it:
    its precision is 1 / alpha^2 + A and its mean B / precision, with A the sum of I / phi and B
    that of e / phi over its pairs with an anchor. The answer is sqrt(E[x^2]).

    Args:
        fit: Residuals of the pairs.
        entrant_of_pair: Entrant of each pair with an anchor, elsewhere ``num_entrants`` or more.
            int64 [Q].
        num_entrants: N.
        variance: alpha^2, in units of theta.

    Returns:
        In units of theta. float64 [N].
    """
    if variance <= 0.0:
        return np.zeros(num_entrants)
    places = np.minimum(entrant_of_pair, num_entrants)

    def by_entrant(values: FloatArray) -> FloatArray:
        sums = np.bincount(places, values, minlength=num_entrants + 1)
        return np.asarray(sums[:num_entrants], dtype=np.float64)

    precision = 1.0 / variance + by_entrant(fit.information / fit.dispersion)
    mean = by_entrant(fit.error / fit.dispersion) / precision
    return np.asarray(np.sqrt(mean**2 + 1.0 / precision))
