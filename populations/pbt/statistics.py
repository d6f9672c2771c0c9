"""Tests of whether one policy is better than another, from matches alone.

Sources: Welch, "The generalization of Student's problem when several different population variances
are involved" (1947), which Jaderberg et al., "Population based training of neural networks" (2017),
use on returns; for wins and losses the pooled two-proportion z-test. All p values are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Literal, TypeVar

from arena.types import PolicyId
from populations.core import Member, Score
from populations.decisions import Comparison

Opponent = TypeVar("Opponent")


def welch_test(first: Member, second: Member) -> Comparison:
    """Compare two mean returns whose variances may differ, by Welch's t-test.

    The first member is the rival.

    With v_i = s_i^2 / n_i: t = (m_1 - m_2) / sqrt(v_1 + v_2), and
    degrees of freedom (v_1 + v_2)^2 / (v_1^2 / (n_1 - 1) + v_2^2 / (n_2 - 1)).

    Raises:
        ValueError: If a member has fewer than two returns.
    """
    from scipy.special import stdtr  # imported late, because the import takes a while

    n1, n2 = first.num_returns, second.num_returns
    if min(n1, n2) < 2:
        raise ValueError(f"both need at least 2 returns, got {n1} and {n2}")
    difference = first.return_mean - second.return_mean
    v1, v2 = first.return_variance / n1, second.return_variance / n2
    deviation = math.sqrt(v1 + v2)
    if deviation == 0.0:
        return _without_variance(first.policy, difference, measure="return")
    share = v1 / (v1 + v2)
    # The degrees of freedom are 1 / (c^2 / (n_1 - 1) + (1 - c)^2 / (n_2 - 1)) with c = v_1 / (v_1 +
    # v_2): the formula above, written so that squares of tiny variances do not underflow.
    freedom = 1.0 / (share**2 / (n1 - 1) + (1.0 - share) ** 2 / (n2 - 1))
    t = difference / deviation
    return Comparison(
        rival=first.policy,
        measure="return",
        difference=difference,
        deviation=deviation,
        statistic=t,
        degrees_of_freedom=freedom,
        # The test is two-sided, so the probability of one tail is doubled.
        p_value=min(2.0 * float(stdtr(freedom, -abs(t))), 1.0),
    )


def two_proportion_test(rival: PolicyId, first: Score, second: Score) -> Comparison:
    """Compare points per match of two players by a z-test; the first score is the rival's.

    With p = (x_1 + x_2) / (n_1 + n_2): z = (x_1 / n_1 - x_2 / n_2) / sqrt(p (1 - p)
    (1 / n_1 + 1 / n_2)). Draws, as half points, have a lower variance than assumed here, so the
    test is conservative.

    Raises:
        ValueError: If a score has no matches.
    """
    if min(first.matches, second.matches) <= 0:
        raise ValueError(f"both need matches, got {first.matches} and {second.matches}")
    difference = first.points / first.matches - second.points / second.matches
    share = pooled_share(first, second)
    variance = share * (1.0 - share) * (1.0 / first.matches + 1.0 / second.matches)
    if variance <= 0.0:
        return _without_variance(rival, difference, measure="score")
    deviation = math.sqrt(variance)
    z = difference / deviation
    return Comparison(
        rival=rival,
        measure="score",
        difference=difference,
        deviation=deviation,
        statistic=z,
        # The p value is 2 Phi(-|z|) = erfc(|z| / sqrt 2); erfc is exact far in the tail.
        p_value=math.erfc(abs(z) / math.sqrt(2.0)),
    )


def pooled_share(first: Score, second: Score) -> float:
    """Return points per match of both scores together, in [0, 1]."""
    share = (first.points + second.points) / (first.matches + second.matches)
    # Sums of weighted points may leave the range by rounding.
    return min(max(share, 0.0), 1.0)


def on_common_opponents(
    first: Mapping[Opponent, Score], second: Mapping[Opponent, Score]
) -> tuple[Score, Score] | None:
    """Return two players' scores against common opponents, with the same mix of opponents.

    Against each opponent both players count the lower of their two numbers of matches, and points
    are scaled down to it. Otherwise the player with more matches against weak opponents would seem
    better.

    Args:
        first: Scores of one player by opponent, without matches between the two players.
        second: Scores of the other player, likewise.

    Returns:
        Scores of the first and of the second player; None if there is no common opponent.
    """
    points_first = points_second = matches = 0.0
    for opponent, one in first.items():
        other = second.get(opponent)
        if other is None or min(one.matches, other.matches) <= 0:
            continue
        # Points are scaled down, never up: no match counts more than once.
        num_counted = min(one.matches, other.matches)
        points_first += one.points * (num_counted / one.matches)
        points_second += other.points * (num_counted / other.matches)
        matches += num_counted
    if matches == 0.0:
        return None
    return Score(points=points_first, matches=matches), Score(points=points_second, matches=matches)


def standard_quantile(probability: float) -> float:
    """Return the quantile z of the standard normal distribution, but at least 0.

    It is 0 for probabilities up to 0.5, so that a lower bound never exceeds an upper bound.
    """
    if probability <= 0.5:
        return 0.0
    # inv_cdf raises an error at 1.
    return NormalDist().inv_cdf(min(probability, 1.0 - 1e-12))


def _without_variance(
    rival: PolicyId, difference: float, *, measure: Literal["return", "score"]
) -> Comparison:
    # The test statistic would be 0 / 0 or infinite, so it is left out.
    return Comparison(
        rival=rival,
        measure=measure,
        difference=difference,
        deviation=0.0,
        p_value=1.0 if difference == 0.0 else 0.0,
    )
