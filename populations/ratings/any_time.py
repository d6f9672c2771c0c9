"""Widths of intervals that are valid at all times at once, however often an estimate is checked."""

from __future__ import annotations

import math


def squared_width(ratio: float, *, chances: int = 1) -> float:
    """Return z^2 such that an estimate stays within z standard deviations for ever in 95% of cases.

    Robbins's normal mixture: z^2 = (1 + v / u) (2 log(k / 0.05) + log(1 + u / v)), for an estimate
    of variance v.

    Source: Robbins, "Statistical methods related to the law of the iterated logarithm" (Annals of
    Mathematical Statistics, 1970).

    Args:
        ratio: u / v, above 0. The square root of u should be about the standard deviation at the
            first check.
        chances: Number k of estimates, to all of which the 95% apply together.
    """
    return (1.0 + 1.0 / ratio) * (2.0 * math.log(chances / 0.05) + math.log1p(ratio))


def squared_width_of_windows(ratio: float, *, chances: int = 1) -> float:
    """Return z^2 for the mean of the newest samples, in a window that moves on for ever.

    z^2 = 2 log(k / 0.05) + 2 log(1 + n / m) is a union bound over windows: each window is a new
    chance of an error, and the probability allowed to it falls with the square of n.

    Args:
        ratio: n / m, the number of samples so far divided by that at the first check.
        chances: Number k of means, to all of which the 95% apply together.
    """
    return 2.0 * math.log(chances / 0.05) + 2.0 * math.log1p(ratio)


def any_time_width(deviation: float, *, scale: float) -> float:
    """Return half the width of an interval that is valid at all times at once in 95% of cases.

    Args:
        deviation: Present standard deviation of the estimate.
        scale: Approximate standard deviation at the first check.
    """
    if deviation <= 0.0:
        return 0.0
    return deviation * math.sqrt(squared_width((scale / deviation) ** 2))
