"""Scores of pairs of entrants beside those that the ratings expect.

Source: Williams, "Extra-binomial variation in logistic linear models" (Journal of the Royal
Statistical Society C, 1982), model II.

Shapes: M rows of results; Q pairs of entrants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from populations.ratings.fitting.posterior import BoolArray, FloatArray, IntArray, logistic

PRIOR_INFORMATION = 16.0
"""Weight of the prior of each pair's phi, as information n p (1 - p): 64 even matches.

With fewer, pairs of which the weaker one drew some by luck weigh more than those of which it did
not, and the distance between the two is too short.
"""

MAX_SURPRISE = 4.0
"""Limit of a pair's information, as a multiple of that at the observed score (plus half a win and
half a loss).
"""

MIN_DISPERSION = 0.05
"""Lower limit of phi: a pair that always draws counts for no more than twenty times its matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rows of results by pair of entrants, whatever their seats.

    Attributes:
        of_row: Pair of each row. int64 [M].
        sign: 1 where the row's first entrant is the pair's first, else -1. float64 [M].
        slack: Sum of s (1 - s) over each pair's scores: 0 for wins and losses, 1/4 for a draw.
            float64 [Q].
        is_anchored: Pairs in which an anchor plays. bool [Q].
    """

    of_row: IntArray
    sign: FloatArray
    slack: FloatArray
    is_anchored: BoolArray

    @classmethod
    def from_rows(
        cls, first: IntArray, second: IntArray, *, slack: FloatArray, is_anchored: BoolArray
    ) -> Pairs:
        """Group rows by pair; all arguments [M]."""
        width = 1 + int(max(first.max(initial=0), second.max(initial=0)))
        key = np.minimum(first, second) * width + np.maximum(first, second)
        _, of_row = np.unique(key, return_inverse=True)
        pairs = np.asarray(of_row, dtype=np.int64)
        return cls(
            of_row=pairs,
            sign=np.where(first < second, 1.0, -1.0),
            slack=_by_pair(slack, pairs),
            is_anchored=_by_pair(is_anchored, pairs) > 0.0,
        )

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum values of rows [M] by pair [Q]."""
        return _by_pair(values, self.of_row)


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
    # Who scores next to nothing cannot draw often. Draws are at most 2 min(p, 1 - p) of all, and
    # s (1 - s) is 1/4 of them: at most m = 1 / (2 max(p, 1 - p)) of p (1 - p), half as much for
    # pairs far apart, which alone tell how far the anchor is, as for equals.
    share = pairs.sum(np.where(pairs.sign > 0.0, expected, 1.0 - expected) * matches)
    share /= np.where(played > 0.0, played, 1.0)
    most = 0.5 / np.maximum(share, 1.0 - share)
    possible = float((most * known).sum())
    drawn = float(pairs.slack.sum()) / possible if possible > 0.0 else 0.0
    # Each pair's phi is shrunk towards that of all, so that few matches do not decide their own
    # weight.
    usual = np.minimum(drawn * most, ceiling)
    slack = (pairs.slack + PRIOR_INFORMATION * usual) / (known + PRIOR_INFORMATION)
    fit = PairFit(
        error=pairs.sum(pairs.sign * (scores - matches * expected)),
        information=known,
        dispersion=1.0 - np.minimum(slack, ceiling),
        played=played,
        won=won,
    )
    return fit, 1.0 - common


def _by_pair(values: FloatArray | BoolArray, pairs: IntArray) -> FloatArray:
    return np.asarray(np.bincount(pairs, values, minlength=0), dtype=np.float64)
