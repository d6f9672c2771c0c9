"""The bend: how far the log-odds of long distances are below the sums of short ones.

Also strong players err now and then, so each step of a ladder is won by more than its ends say when
they meet. Log-odds are therefore a concave function of distance,

h(d) = sign(d) ((1 + |d|)^(1 - b) - 1) / (1 - b),

with h = d for b = 0. b is estimated where results speak for it. *Ratings* r are the additive
strengths nearest to h: the least sum of squares of h(d_ij) - (r_i - r_j) over all pairs of players,
each counted once, however often they met, has

r_i = mean over j of h(d_ij),

less the same of the anchors, which stay at 0. So h serves to weigh all distances alike, although
most matches are those of neighbours.

Sources: Box and Cox, "An analysis of transformations" (Journal of the Royal Statistical Society B,
1964), for the family; Rao, "Large sample tests of statistical hypotheses concerning several
parameters" (Proceedings of the Cambridge Philosophical Society, 1948), for the test.

Shapes: N entrants; K columns of their spread.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MAX_BEND = 0.8
"""Upper limit of b: with more, far players are all at one distance."""

MAX_PLAYERS = 300
"""Players, evenly drawn by strength, that stand for all as opponents."""


def bent(distances: FloatArray, bend: float) -> tuple[FloatArray, FloatArray]:
    """Return h of distances in units of theta, and its slopes; in the shape of the distances."""
    base, power = 1.0 + np.abs(distances), 1.0 - bend
    found = np.sign(distances) * (base**power - 1.0) / power
    return np.asarray(found), np.asarray(base**-bend)


def bent_by(distances: FloatArray, bend: float) -> FloatArray:
    """Return the derivative of h by b; in the shape of the distances."""
    base, power = 1.0 + np.abs(distances), 1.0 - bend
    raised = base**power
    # d/dk ((u^k - 1) / k) = u^k log(u) / k - (u^k - 1) / k^2, and k = 1 - b
    by_power = raised * np.log(base) / power - (raised - 1.0) / power**2
    return np.asarray(-np.sign(distances) * by_power)


def ratings_of(
    strengths: FloatArray, directions: FloatArray, *, bend: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ratings of strengths, and how they change with the strengths.

    Args:
        strengths: theta; 0 are anchors. float64 [N].
        directions: Changes of theta. float64 [N, K].
        bend: b.

    Returns:
        Ratings [N] and their changes [N, K], float64, in units of theta.
    """
    if not bend:
        return strengths, directions
    against = np.argsort(strengths, kind="stable")[:: 1 + len(strengths) // MAX_PLAYERS]
    ahead, slopes = bent(strengths[:, None] - strengths[against], bend)
    # Of the anchors: h(0 - theta_j) = -h(theta_j).
    above, slopes_above = bent(strengths[against], bend)
    changes = slopes.mean(axis=1)[:, None] * directions
    changes += (slopes_above - slopes) @ directions[against] / len(against)
    return np.asarray(ahead.mean(axis=1) + above.mean()), np.asarray(changes)


def ratings_by(strengths: FloatArray, *, bend: float) -> FloatArray:
    """Return the derivative of the ratings by b, strengths as they are. float64 [N]."""
    against = np.sort(strengths)[:: 1 + len(strengths) // MAX_PLAYERS]
    ahead = bent_by(strengths[:, None] - against, bend).mean(axis=1)
    return np.asarray(ahead + bent_by(against, bend).mean())


def scatter_of(strengths: FloatArray, *, bend: float) -> float:
    """Return the mean square of h - (r_i - r_j) over all pairs, in units of theta squared."""
    if not bend:
        return 0.0
    some = np.argsort(strengths, kind="stable")[:: 1 + len(strengths) // MAX_PLAYERS]
    ahead, _ = bent(strengths[some, None] - strengths[some], bend)
    ratings = ahead.mean(axis=1)
    return float(np.mean((ahead - (ratings[:, None] - ratings)) ** 2))
