"""Lessons of past generations: how fast the rating rose with which hyperparameters.

A generation's gain is a difference of two noisy ratings, and a short one is nothing but noise: 30
Elo in 500 steps are 60,000 Elo per million. So a model is not told what was measured but what can
be believed: rates are spread around a mean m with variance tau^2, each was measured with its own
variance s^2, and what is expected of one is

    m + k (measured - m),    k = tau^2 / (tau^2 + s^2).

Sources: DerSimonian and Laird, "Meta-analysis in clinical trials" (Controlled Clinical Trials,
1986), for m and tau^2 from measurements of different precision; Efron and Morris, "Stein's
estimation rule and its competitors" (1973), for the formula. Shapes: N generations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from populations.choices import is_known
from populations.records.rows import GenerationRow

FloatArray = npt.NDArray[np.float64]

MILLION = 1_000_000

MIN_VARIANCE = 1e-12
"""Smallest variance of a measurement, as a share of the largest: none is exact."""

MIN_RELIABILITY = 0.1
"""Generations below this share of the highest k are left out: models take all as equally sure."""

LEAST_SIGNAL = 0.1
"""Least variance of true rates that models assume, as a share of the most exact measurement's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A finished generation.

    Attributes:
        row: The generation.
        rating_begin: Elo.
        num_steps: Agent steps that its gain was measured over, above 0.
        rate: Elo per million agent steps that can be believed.
        reliability: The k of the module's docstring, from 0 to 1.
        measured: Elo per million agent steps.
        deviation: Its standard deviation.
    """

    row: GenerationRow
    rating_begin: float
    num_steps: int
    rate: float
    reliability: float
    measured: float
    deviation: float


def finished(
    history: Iterable[GenerationRow], *, names: Sequence[str] = ()
) -> tuple[Improvement, ...]:
    """Take the generations that ended and whose gain is known well enough.

    Args:
        history: Generations in order of beginning.
        names: Hyperparameters of which a generation must have had a finite value.
    """
    known = [
        (row, begin, num_steps, rate, deviation)
        for row in history
        if row.agent_steps_end is not None
        and (measured := _measured(row)) is not None
        and _has_all(row, names)
        # This loop over one element unpacks it.
        for begin, num_steps, rate, deviation in (measured,)
    ]
    if not known:
        return ()
    rates = np.array([rate for _, _, _, rate, _ in known])
    believed, reliability = believable(rates, np.array([deviation for *_, deviation in known]))
    # The highest k itself passes, so the answer is empty only where nothing was measured.
    least = MIN_RELIABILITY * float(reliability.max())
    return tuple(
        Improvement(
            row=row,
            rating_begin=begin,
            num_steps=num_steps,
            rate=rate,
            reliability=k,
            measured=measured,
            deviation=deviation,
        )
        for (row, begin, num_steps, measured, deviation), rate, k in zip(
            known, believed.tolist(), reliability.tolist(), strict=True
        )
        if k >= least
    )


def _measured(row: GenerationRow) -> tuple[float, int, float, float] | None:
    """Return rating at the beginning, agent steps, rate, its deviation; None if one is unknown."""
    begin, end, num_steps = row.rating_begin, row.rating_end, row.gain_agent_steps
    deviation = row.gain_deviation
    # A rate cannot be weighed without its deviation.
    if begin is None or end is None or deviation is None or not num_steps:
        return None
    rate, deviation = ((gain * MILLION / num_steps) for gain in (end - begin, deviation))
    if num_steps < 0 or not all(map(math.isfinite, (begin, rate, deviation))):
        return None
    return begin, num_steps, rate, deviation


def believable(rates: FloatArray, deviations: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pull measurements to their mean, the more the less exact each one is.

    Args:
        rates: Measured rates. float64 [N], N >= 1.
        deviations: Their standard deviations, at least 0. float64 [N].

    Returns:
        What is expected of each, and the k of the module's docstring. float64 [N] each.
    """
    variances = _variances(deviations)
    # All measurements are exact.
    if not variances.any():
        return rates, np.ones_like(rates)
    between = _between(rates, variances)
    reliability = between / (between + variances)
    # Weights 1 / (tau^2 + s^2): the mean of all, not of the most exact ones.
    # In units of the largest, so that no weight overflows.
    random_weights = (between + variances.min()) / (between + variances)
    mean = float(random_weights @ rates / random_weights.sum())
    return mean + reliability * (rates - mean), reliability


def _variances(deviations: FloatArray) -> FloatArray:
    least = MIN_VARIANCE * float((deviations**2).max())
    # Deviations are so small that a share of them is no number any more: all count as exact.
    if least < np.finfo(np.float64).tiny:
        return np.zeros_like(deviations)
    return np.maximum(deviations**2, least)


def _between(rates: FloatArray, variances: FloatArray) -> float:
    """Return tau^2, at least 0; variances above 0."""
    weights = variances.min() / variances
    total = weights.sum()
    # Weights are in units of the smallest variance, so that none overflows. The two values are Q -
    # (N - 1), and sum w - sum w^2 / sum w: tau^2 is their quotient, at least 0.
    spread = weights @ (rates - weights @ rates / total) ** 2 - (len(rates) - 1) * variances.min()
    freedom = total - weights @ weights / total
    return max(float(spread / freedom), 0.0) if freedom > 0.0 else 0.0


def leads(known: Sequence[Improvement]) -> tuple[FloatArray, FloatArray, float]:
    """Compare finished generations, of which there is at least one, with those of their time.

    Rates fall as policies grow strong, whatever their hyperparameters: compared with all others,
    early generations would be the best. So rates are compared with a line through all of them over
    the agent steps at which they began.

    Returns:
        Elo per million agent steps above the line, and variances of their noise, above 0; float64
        [N] each. Variance of the true ones, above 0.
    """
    rates = np.array([one.measured for one in known])
    variances = _variances(np.array([one.deviation for one in known]))
    # All are exact: noise that is small beside any difference.
    if not variances.any():
        variances = np.full_like(rates, MIN_VARIANCE * (float(np.var(rates)) or 1.0))
    begins = np.array([one.row.agent_steps_begin for one in known]) / MILLION
    # The line is fitted by weighted least squares: rate = a + b begin.
    scale = np.sqrt(variances.min() / variances)
    line = np.column_stack([np.ones_like(begins), begins])
    fitted, *_ = np.linalg.lstsq(line * scale[:, None], rates * scale, rcond=None)
    measured = rates - line @ fitted
    # tau^2 is 0 where the spread drowns in noise, and believable rates are all equal. Models go by
    # their order and find a hill in many of them all the same: only the less exact are pulled then.
    signal = max(_between(measured, variances), LEAST_SIGNAL * float(variances.min()))
    return measured, variances, signal


def believed_leads(known: Sequence[Improvement]) -> FloatArray:
    """Return the `leads`, each pulled to 0 the more the less exact it is. float64 [N]."""
    measured, variances, signal = leads(known)
    return np.asarray(signal / (signal + variances) * measured, dtype=np.float64)


def running(
    history: Iterable[GenerationRow], *, names: Sequence[str] = ()
) -> tuple[GenerationRow, ...]:
    """Return the generations that have not ended: one per policy, the newest."""
    # The history is in order of beginning, so the last row of a policy stays.
    newest = {row.policy: row for row in history if row.agent_steps_end is None}
    return tuple(row for row in newest.values() if _has_all(row, names))


def _has_all(row: GenerationRow, names: Iterable[str]) -> bool:
    return all(is_known(row.hyperparameters.get(name)) for name in names)
