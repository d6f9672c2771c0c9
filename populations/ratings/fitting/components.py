"""Components of variance, estimated from the results.

The summed score of a pair with expected score p in n matches has the variance

V = phi n p (1 - p) + sigma^2 (n p (1 - p))^2.

phi is below 1 where matches are drawn or won by margins: these scatter less than wins and losses.
sigma, in units of theta, is the spread of pairs around what any rating predicts (styles, cycles),
of pairs that are far apart. It rises with their distance, up to `FAR`: players near each other are
mostly of one line, and so of one style, and most matches are theirs. But what near pairs deviate by
is common to many of them and adds up along a ladder, so all pairs weigh as those far apart do.
tau is the spread of children around their parent plus the common gain of their time, rho that of
entrants without a rated parent around the others of their time. They are estimated in turns with
the ratings: phi and sigma by moments, tau and rho by their marginal likelihood. The bend of
log-odds, and alpha, by which results against anchors may be off, come from tests of the fit
(`populations.ratings.fitting.misfit`).

Sources: Wedderburn, "Quasi-likelihood functions, generalized linear models, and the Gauss-Newton
method" (Biometrika, 1974); Williams, "Extra-binomial variation in logistic linear models" (Journal
of the Royal Statistical Society C, 1982), model II; MacKay, "Bayesian interpolation" (Neural
Computation, 1992).

Shapes: Q pairs of entrants; C children.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from populations.ratings.fitting.misfit import (
    MAX_PAIR_VARIANCE,
    MIN_EXPECTED,
    MIN_LEFT,
    misfit_of,
)
from populations.ratings.fitting.pair_errors import PairFit
from populations.ratings.fitting.posterior import FloatArray

# (300 / ELO_PER_UNIT)
FAR = 1.73
"""Distance from which on pairs scatter no more, that of 300 Elo: they are of other lines then, or
of another time."""

PRIOR_PAIRS = 10.0
"""Weight of sigma's prior, as a number of typical pairs without an effect."""

PRIOR_INFORMATION = 4.0
"""Further weight of that prior, as information n p (1 - p): sixteen even matches."""

PRIOR_CHILDREN = 0.25
"""Weight of the priors of tau and rho, in entrants."""

LIMITS_OF_PRIORS = (10.0, 1000.0)
"""Lower and upper limit of tau and rho, in Elo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Estimated components of variance.

    Attributes:
        child_deviation: tau, in Elo.
        root_deviation: rho, in Elo.
        pair_deviation: Deviation of pairs from the ratings, in Elo: sigma of those that are far
            apart, and what the bend adds.
        dispersion: phi of all pairs together.
        misfit: Standard deviations by which the pairs' squared errors exceed what chance and phi
            explain, or the bend or the recency is off 0, or the anchors' errors exceed what chance
            explains, whichever is most. 0 where too little is known.
        bend: b; above 0 log-odds of long distances are less than the sums of short ones, below 0
            more.
        anchor_deviation: alpha, in Elo, by which players' results against the anchors are off
            what the fit says. 0 where chance explains the errors.
    """

    child_deviation: float
    root_deviation: float = 1000.0
    pair_deviation: float = 0.0
    dispersion: float = 1.0
    misfit: float = 0.0
    bend: float = 0.0
    anchor_deviation: float = 0.0


def _reach(fit: PairFit) -> FloatArray:
    """Return the distance of each pair as a part of `FAR`, at most 1. float64 [Q]."""
    expected = fit.won - fit.error
    # Half a win for each keeps log-odds finite.
    apart = np.abs(np.log((expected + 0.5) / (fit.played - expected + 0.5)))
    return np.minimum(apart / FAR, 1.0)


def pair_scatter(
    fit: PairFit, *, variances: FloatArray, weights: FloatArray
) -> tuple[float, float]:
    """Estimate sigma^2 of pairs that are far apart, and test it against 0.

    The expected squared error of a pair is (1 - h) V. h = w I v is the share of the pair's
    information that the ratings have absorbed: weight w, information I, variance v of its log-odds.

    Args:
        fit: Fit of each pair.
        variances: v: variance of the difference of each pair's ratings, units of theta. float64
            [Q].
        weights: w that the fit was made with. float64 [Q].

    Returns:
        sigma^2, and ``Components.misfit``.
    """
    # 1 - h; sampled variances and the limit on I can put h above 1.
    left = np.clip(1.0 - weights * fit.information * variances, 0.0, 1.0)
    # A pair that decides its own rating fits it exactly, and a certain one cannot err: 0 / 0.
    usable = (fit.information > 1e-9) & (left > 1e-3)
    if not usable.any():
        return 0.0, 0.0
    error, information = fit.error[usable], fit.information[usable]
    chance, left = (fit.dispersion * fit.information)[usable], left[usable]
    by_weight = weights[usable] ** 2
    # The estimate weighs small pairs down, the test does not: it leaves them out.
    is_tested = (information >= MIN_EXPECTED) & (left >= MIN_LEFT)
    misfit = misfit_of((error**2 / chance)[is_tested], left=left[is_tested])
    # Moments, weighted as least squares have it: of f in {1, reach},
    # sum f w^2 (e^2 - (1 - h) phi I) = sum f (near + rise reach) w^2 (1 - h) I^2.
    shapes = np.stack([np.ones(len(left)), _reach(fit)[usable]])
    excess = shapes @ (by_weight * (error**2 - left * chance))
    known = (shapes * (by_weight * left * information**2)) @ shapes.T
    # Few pairs or matches cannot tell effects from chance: the prior adds pairs without an effect.
    known = known * (1.0 + PRIOR_PAIRS / float(left.sum())) + PRIOR_INFORMATION**2 * np.eye(2)
    near, rise = np.linalg.solve(known, excess).tolist()
    # A variance is not below 0: then the other part alone explains the errors.
    if rise < 0.0:
        near, rise = float(excess[0] / known[0, 0]), 0.0
    elif near < 0.0:
        near, rise = 0.0, float(excess[1] / known[1, 1])
    return min(max(near, 0.0) + max(rise, 0.0), MAX_PAIR_VARIANCE), misfit


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
