"""Tests of the fit: are the results what the ratings promise?

Three tests, each against chance: of all pairs, of those far apart, and of those with an anchor.
What the last two find widens intervals.

Sources: Cochran, "Some methods for strengthening the common chi-squared tests" (Biometrics, 1954);
Satterthwaite, "An approximate distribution of estimates of variance components" (Biometrics, 1946);
Wilson and Hilferty, "The distribution of chi-square" (PNAS, 1931).

Shapes: Q pairs of entrants; N entrants.
"""

from __future__ import annotations

import math

import numpy as np

from populations.ratings.fitting.pair_errors import PairFit
from populations.ratings.fitting.posterior import BoolArray, FloatArray, IntArray

# (400 / ELO_PER_UNIT)^2
MAX_PAIR_VARIANCE = 5.3
"""Upper limit of sigma^2 and alpha^2, that of 400 Elo: with more, ratings would explain nothing and
pairs everything.
"""

MISFIT = 4.0
"""Standard deviations of a misfit below which chance is to blame (once in 30,000 fits)."""

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
    fit: PairFit, *, variances: FloatArray, pair_variance: FloatArray
) -> tuple[float, float]:
    """Estimate by which share distances between players far apart are wrong, and test it against 0.

    The model may be wrong as a whole, not only by pairs: where the better player errs in one match
    of twenty, whomever it meets, each step of a chain of results is right and their sum is too
    long. A pair's log-odds as seen are then off the expected ones, d, by an error of variance

        (1 - h) u + gamma^2 d^2,    u = phi / I + sigma^2,

    with I the information at the score seen, and h as for sigma. gamma follows by moments, weighted
    by d^2: it is about pairs far apart, though single ones of them tell little.

    Args:
        fit: Residuals of the pairs.
        variances: v: of the difference of each pair's ratings, units of theta. float64 [Q].
        pair_variance: sigma^2 of each pair in units of theta. float64 [Q].

    Returns:
        gamma, relative to distances, and the standard deviations by which the weighted squared
        errors are above what chance explains (Satterthwaite's degrees of freedom).

    Source: Satterthwaite, "An approximate distribution of estimates of variance components"
    (Biometrics, 1946).
    """
    lost, expected = fit.played - fit.won, fit.won - fit.error
    # Half a win for each keeps log-odds finite where somebody always won; both sides have it.
    seen = np.log((fit.won + 0.5) / (lost + 0.5))
    distance = np.log((expected + 0.5) / (fit.played - expected + 0.5))
    # I = (n + 1) p (1 - p) at p = (won + 1/2) / (n + 1), the variance of a log-odds being 1 / I.
    information = (fit.won + 0.5) * (lost + 0.5) / (fit.played + 1.0)
    chance = fit.dispersion / information + pair_variance
    # 1 - h, with h = v / (u + v) what the ratings took over from the pair itself.
    left = np.clip(1.0 - variances / (chance + variances), MIN_LEFT, 1.0)
    # Of a sum of a_i X_i, with X_i chi-squared: mean sum(a), variance 2 sum(a^2).
    shares = left * distance**2 / chance
    total = float(shares.sum())
    # All pairs are expected to be even: no distance, so nothing about a factor of distances.
    if total <= 0.0:
        return 0.0, 0.0
    squares, known = (seen - distance) ** 2, left * chance
    freedom = total**2 / float((shares**2).sum())
    # Weighted mean of e^2 / ((1 - h) u), 1 by chance alone.
    surprise = float((shares * squares / known).sum()) / total
    # gamma^2 = sum d^2 (e^2 - (1 - h) u) / sum d^4
    excess = float((distance**2 * (squares - known)).sum()) / float((distance**4).sum())
    gamma = math.sqrt(max(excess, 0.0))
    return gamma, _above_chance(surprise, freedom=freedom)


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
