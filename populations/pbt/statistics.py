"""Tests of whether one policy is better than another, from matches alone.

Sources: Welch, "The generalization of Student's problem when several different population variances
are involved" (1947), which Jaderberg et al., "Population based training of neural networks" (2017),
use on returns; for wins and losses the pooled two-proportion z-test. All p values are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

from populations.core import Score

Opponent = TypeVar("Opponent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Significance:
    """Result of a test of ``first - second``.

    Attributes:
        difference: Difference of the two means.
        deviation: Its standard error.
        statistic: t or z; None where nothing varies, because it would be 0 / 0 or infinite.
        degrees_of_freedom: Degrees of freedom of t; None for z, and where nothing varies.
        p_value: Probability of a difference at least as large, either way, between equals.
    """

    difference: float
    deviation: float
    statistic: float | None
    degrees_of_freedom: float | None
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Size, mean and sample variance (divisor n - 1) of some numbers."""

    size: int
    mean: float
    variance: float


def welch_test(first: Sample, second: Sample) -> Significance:
    """Compare two means whose variances may differ.

    With v_i = s_i^2 / n_i: t = (m_1 - m_2) / sqrt(v_1 + v_2), and
    degrees of freedom (v_1 + v_2)^2 / (v_1^2 / (n_1 - 1) + v_2^2 / (n_2 - 1)).

    Raises:
        ValueError: If a sample has fewer than two numbers.
    """
    from scipy.special import stdtr  # here, because importing it takes a while

    if min(first.size, second.size) < 2:
        raise ValueError(f"both sizes must be at least 2, got {first.size} and {second.size}")
    difference = first.mean - second.mean
    # v_i = s_i^2 / n_i
    v1, v2 = first.variance / first.size, second.variance / second.size
    deviation = math.sqrt(v1 + v2)
    if deviation == 0.0:
        return _without_variance(difference)
    share = v1 / (v1 + v2)  # the same formula, but squares of tiny variances do not vanish
    # With c = v_1 / (v_1 + v_2): 1 / (c^2 / (n_1 - 1) + (1 - c)^2 / (n_2 - 1))
    freedom = 1.0 / (share**2 / (first.size - 1) + (1.0 - share) ** 2 / (second.size - 1))
    t = difference / deviation
    return Significance(
        difference=difference,
        deviation=deviation,
        statistic=t,
        degrees_of_freedom=freedom,
        # Both tails.
        p_value=min(2.0 * float(stdtr(freedom, -abs(t))), 1.0),
    )


def two_proportion_test(first: Score, second: Score) -> Significance:
    """Compare two shares of points.

    With p = (x_1 + x_2) / (n_1 + n_2): z = (x_1 / n_1 - x_2 / n_2) / sqrt(p (1 - p)
    (1 / n_1 + 1 / n_2)). Draws, as half points, vary less than that says, so the test is careful.

    Raises:
        ValueError: If one has no matches.
    """
    if min(first.matches, second.matches) <= 0:
        raise ValueError(f"both need matches, got {first.matches} and {second.matches}")
    difference = first.points / first.matches - second.points / second.matches
    share = pooled_share(first, second)
    variance = share * (1.0 - share) * (1.0 / first.matches + 1.0 / second.matches)
    if variance <= 0.0:
        return _without_variance(difference)
    deviation = math.sqrt(variance)
    z = difference / deviation
    return Significance(
        difference=difference,
        deviation=deviation,
        statistic=z,
        degrees_of_freedom=None,
        # 2 Phi(-|z|) = erfc(|z| / sqrt 2), exact far in the tail.
        p_value=math.erfc(abs(z) / math.sqrt(2.0)),
    )


def pooled_share(first: Score, second: Score) -> float:
    """Return points per match of both together, in [0, 1]."""
    share = (first.points + second.points) / (first.matches + second.matches)
    # Sums of weighted points can leave the range by rounding.
    return min(max(share, 0.0), 1.0)


def on_common_opponents(
    first: Mapping[Opponent, Score], second: Mapping[Opponent, Score]
) -> tuple[Score, Score] | None:
    """Return scores against the opponents that both have met, with the same mix of opponents.

    Of each opponent as many matches count for both as the one with fewer has; the other's points
    are scaled down. Without that, who was given the weaker opponents more often would look better.

    Args:
        first: Scores of one player by opponent, the two themselves left out.
        second: Scores of the other.

    Returns:
        The two scores; None if there is no common opponent.
    """
    points_first = points_second = matches = 0.0
    for opponent, one in first.items():
        other = second.get(opponent)
        if other is None or min(one.matches, other.matches) <= 0:
            continue
        # Scaled down, never up: no match counts more than once.
        num_counted = min(one.matches, other.matches)
        points_first += one.points * (num_counted / one.matches)
        points_second += other.points * (num_counted / other.matches)
        matches += num_counted
    if matches == 0.0:
        return None
    return Score(points=points_first, matches=matches), Score(points=points_second, matches=matches)


def standard_quantile(probability: float) -> float:
    """Return deviations from its mean below which a normal variable is with this probability.

    0 for probabilities up to 0.5, so that bounds never change places.
    """
    if probability <= 0.5:
        return 0.0
    # inv_cdf refuses 1.
    return NormalDist().inv_cdf(min(probability, 1.0 - 1e-12))


def _without_variance(difference: float) -> Significance:
    return Significance(
        difference=difference,
        deviation=0.0,
        statistic=None,
        degrees_of_freedom=None,
        p_value=1.0 if difference == 0.0 else 0.0,
    )
