"""Widths of intervals that hold at all times at once, however often one looks."""

from __future__ import annotations

import math


def squared_width(ratio: float, *, chances: int = 1) -> float:
    """Return z^2: an estimate is never further off than z standard deviations in 95% of cases.

    Robbins's normal mixture: z^2 = (1 + v / u) (2 log(k / 0.05) + log(1 + u / v)), for an estimate
    of variance v.

    Source: Robbins, "Statistical methods related to the law of the iterated logarithm" (Annals of
    Mathematical Statistics, 1970).

    Args:
        ratio: u / v, above 0. The square root of u is about as large as the deviations are when one
            begins to look.
        chances: Number k of estimates that are looked at; none of them is further off.
    """
    return (1.0 + 1.0 / ratio) * (2.0 * math.log(chances / 0.05) + math.log1p(ratio))


def squared_width_of_windows(ratio: float, *, chances: int = 1) -> float:
    """Return z^2 for the mean of the newest samples, in a window that moves on for ever.

    z^2 = 2 log(k / 0.05) + 2 log(1 + n / m): windows forget, so each further one is a new chance,
    and what each may use up falls with the square of n (a union bound over windows).

    Args:
        ratio: n / m, samples so far to those when one begins to look.
        chances: Number k of means that are looked at; none of them is further off.
    """
    return 2.0 * math.log(chances / 0.05) + 2.0 * math.log1p(ratio)


def any_time_width(deviation: float, *, scale: float) -> float:
    """Return half the width of an interval that holds at all times at once in 95% of cases.

    Args:
        deviation: Standard deviation of the estimate now.
        scale: About as large as deviations are when one begins to look.
    """
    if deviation <= 0.0:
        return 0.0
    return deviation * math.sqrt(squared_width((scale / deviation) ** 2))
