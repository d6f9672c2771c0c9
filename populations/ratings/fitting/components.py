"""Four components of variance, estimated from the results.

The summed score of a pair with expected score p in n matches has the variance

V = phi n p (1 - p) + sigma^2 (n p (1 - p))^2.

phi is below 1 where matches are drawn or won by margins: these scatter less than wins and losses.
sigma, in units of theta, is the spread of pairs around what any rating predicts (styles, cycles).
tau is the spread of children around their parent plus the common gain of their time, rho that of
entrants without a rated parent around the others of their time. They are estimated in turns with
the ratings: phi and sigma by moments, tau and rho by their marginal likelihood.

Sources: Wedderburn, "Quasi-likelihood functions, generalized linear models, and the Gauss-Newton
method" (Biometrika, 1974); Williams, "Extra-binomial variation in logistic linear models" (Journal
of the Royal Statistical Society C, 1982), model II; MacKay, "Bayesian interpolation" (Neural
Computation, 1992); Cochran, "Some methods for strengthening the common chi-squared tests"
(Biometrics, 1954).

Shapes: M rows of results; Q pairs of entrants; N entrants; K columns of the spread; C children.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from populations.ratings.fitting.posterior import FloatArray, IntArray, logistic

PRIOR_INFORMATION = 4.0
"""Weight of the priors of phi (per pair) and of sigma, as information n p (1 - p): sixteen even
matches.
"""

PRIOR_PAIRS = 10.0
"""Weight of sigma's prior, as a number of typical pairs without an effect."""

MAX_SURPRISE = 4.0
"""Limit of a pair's information, as a multiple of that at the observed score (plus half a win and
half a loss).
"""

# (400 / ELO_PER_UNIT)^2
MAX_PAIR_VARIANCE = 5.3
"""Upper limit of sigma^2, that of 400 Elo: with more, ratings would explain nothing and pairs
everything.
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

MISFIT = 4.0
"""Standard deviations of a misfit below which chance is to blame (once in 30,000 fits)."""

SCALE_DOUBT = 2.0
"""Standard deviations from which on the scale is in doubt: an interval that is too wide once in 40
fits that hold is better than one that is too narrow in those that do not."""

MIN_DISPERSION = 0.05
"""Lower limit of phi: a pair that always draws counts for no more than twenty times its matches."""

PRIOR_CHILDREN = 0.25
"""Weight of the priors of tau and rho, in entrants."""

LIMITS_OF_PRIORS = (10.0, 1000.0)
"""Lower and upper limit of tau and rho, in Elo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rows of results by pair of entrants, whatever their seats.

    Attributes:
        of_row: Pair of each row. int64 [M].
        sign: 1 where the row's first entrant is the pair's first, else -1. float64 [M].
        slack: Sum of s (1 - s) over each pair's scores: 0 for wins and losses, 1/4 for a draw.
            float64 [Q].
    """

    of_row: IntArray
    sign: FloatArray
    slack: FloatArray

    @classmethod
    def from_rows(cls, first: IntArray, second: IntArray, *, slack: FloatArray) -> Pairs:
        """Group rows by pair; all arguments [M]."""
        width = 1 + int(max(first.max(initial=0), second.max(initial=0)))
        key = np.minimum(first, second) * width + np.maximum(first, second)
        _, of_row = np.unique(key, return_inverse=True)
        pairs = np.asarray(of_row, dtype=np.int64)
        return cls(
            of_row=pairs,
            sign=np.where(first < second, 1.0, -1.0),
            slack=_by_pair(slack, pairs),
        )

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum values of rows [M] by pair [Q]."""
        return _by_pair(values, self.of_row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Estimated components of variance.

    Attributes:
        child_deviation: tau, in Elo.
        root_deviation: rho, in Elo.
        pair_deviation: sigma, in Elo.
        dispersion: phi of all pairs together.
        misfit: Standard deviations by which the pairs' squared errors exceed what chance and phi
            explain, or those of pairs far apart exceed what sigma explains, whichever is more. 0
            where too little is known.
        scale_deviation: gamma, the standard deviation of the unknown factor (around 1) by which
            distances are wrong. 0 where chance explains the errors.
    """

    child_deviation: float
    root_deviation: float = 1000.0
    pair_deviation: float = 0.0
    dispersion: float = 1.0
    misfit: float = 0.0
    scale_deviation: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFit:
    """Residual, information and dispersion of each pair; all float64 [Q].

    Attributes:
        error: Score minus expected score, summed over the pair's matches.
        information: n p (1 - p), at most ``MAX_SURPRISE`` times that at the observed score.
        dispersion: phi.
        played: Matches.
        won: Sum of the scores of the pair's first.
    """

    error: FloatArray
    information: FloatArray
    dispersion: FloatArray
    played: FloatArray
    won: FloatArray

    def weights(self, pair_variance: float) -> FloatArray:
        """Return information over variance, with sigma^2 in units of theta. float64 [Q]."""
        # w = n p (1 - p) / V = 1 / (phi + sigma^2 n p (1 - p))
        return np.asarray(1.0 / (self.dispersion + pair_variance * self.information))


def pair_fit(
    pairs: Pairs, *, ahead: FloatArray, scores: FloatArray, matches: FloatArray
) -> tuple[PairFit, float]:
    """Compare the scores of pairs with their log-odds.

    Args:
        pairs: Pairs of the rows.
        ahead: Log-odds of each row. float64 [M].
        scores: Sum of the scores of its first. float64 [M].
        matches: Matches of each row. float64 [M].

    Returns:
        The fit of each pair, and phi of all pairs together.
    """
    expected, information = logistic(ahead)
    known = pairs.sum(matches * information)
    # Where an entrant always won, the priors hold the fit back: it expects losses, and so
    # information, that the results do not have. Weights by that would hold it back further.
    played = pairs.sum(matches)
    won = pairs.sum(np.where(pairs.sign > 0.0, scores, matches - scores))
    # (n + 1) p (1 - p) at p = (won + 1/2) / (n + 1), above 0 where one always won.
    seen = (won + 0.5) * (played - won + 0.5) / (played + 1.0)
    known = np.minimum(known, MAX_SURPRISE * seen)
    total = float(known.sum())
    ceiling = 1.0 - MIN_DISPERSION
    # phi = 1 - sum s (1 - s) / sum n p (1 - p), since E[(s - p)^2] = p (1 - p) - E[s (1 - s)].
    common = min(float(pairs.slack.sum()) / total, ceiling) if total > 0.0 else 0.0
    # Each pair's phi is shrunk towards the common one, so that few matches do not decide their own
    # weight.
    slack = (pairs.slack + PRIOR_INFORMATION * common) / (known + PRIOR_INFORMATION)
    fit = PairFit(
        error=pairs.sum(pairs.sign * (scores - matches * expected)),
        information=known,
        dispersion=1.0 - np.minimum(slack, ceiling),
        played=played,
        won=won,
    )
    return fit, 1.0 - common


def scale_deviation(
    fit: PairFit, *, variances: FloatArray, pair_variance: float
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
        pair_variance: sigma^2 in units of theta.

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


def pair_variance(fit: PairFit, *, variances: FloatArray, now: float) -> tuple[float, float]:
    """Estimate sigma^2, and test it against 0.

    The expected squared error of a pair is (1 - h) V. h = w I v is the share of the pair's
    information that the ratings have absorbed: weight w, information I, variance v of its log-odds.

    Args:
        fit: Fit of each pair.
        variances: v: variance of the difference of each pair's ratings, units of theta. float64
            [Q].
        now: sigma^2 that the fit was made with.

    Returns:
        sigma^2 in units of theta, and ``Components.misfit``.
    """
    weights = fit.weights(now)
    # 1 - h; sampled variances and the limit on I can put h above 1.
    left = np.clip(1.0 - weights * fit.information * variances, 0.0, 1.0)
    # A pair that decides its own rating fits it exactly, and a certain one cannot err: 0 / 0.
    usable = (fit.information > 1e-9) & (left > 1e-3)
    if not usable.any():
        return 0.0, 0.0
    error, information = fit.error[usable], fit.information[usable]
    chance, left = (fit.dispersion * fit.information)[usable], left[usable]
    by_weight = weights[usable] ** 2
    # Moments: sum w^2 (e^2 - (1 - h) phi I) = sigma^2 sum w^2 (1 - h) I^2.
    excess = float((by_weight * (error**2 - left * chance)).sum())
    freedom = float(left.sum())
    # Few pairs or matches cannot tell effects from chance: the prior adds pairs without an effect.
    known = float((by_weight * left * information**2).sum())
    known += known * PRIOR_PAIRS / freedom + PRIOR_INFORMATION**2
    # The estimate weighs small pairs down, the test does not: it leaves them out.
    is_tested = (information >= MIN_EXPECTED) & (left >= MIN_LEFT)
    misfit = _misfit((error**2 / chance)[is_tested], left=left[is_tested])
    return min(max(excess / known, 0.0), MAX_PAIR_VARIANCE), misfit


def _misfit(squares: FloatArray, *, left: FloatArray) -> float:
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


def prior_deviation(jumps: FloatArray, *, variances: FloatArray, now: float, prior: float) -> float:
    """Take one fixed-point step of MacKay's evidence maximization for tau or rho, in Elo.

    Args:
        jumps: Distance of the entrants from their prior means, Elo. float64 [C].
        variances: v: posterior variances of the jumps, in Elo squared. float64 [C].
        now: Deviation that the fit was made with.
        prior: Deviation in Elo that the estimate leans on where little is known.
    """
    # deviation^2 = sum jump^2 / gamma, with gamma = sum (1 - v / now^2) the number of jumps that
    # the results determine; the prior counts as PRIOR_CHILDREN more.
    told = float(np.clip(1.0 - variances / now**2, 0.0, 1.0).sum())
    total = float((jumps**2).sum()) + PRIOR_CHILDREN * prior**2
    # The next step divides by the deviation, so it must not be 0.
    low, high = LIMITS_OF_PRIORS
    return min(max(math.sqrt(total / (told + PRIOR_CHILDREN)), low), high)


def _by_pair(values: FloatArray, pairs: IntArray) -> FloatArray:
    return np.asarray(np.bincount(pairs, values, minlength=0), dtype=np.float64)
