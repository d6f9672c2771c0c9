"""Rates at which ratings rose in past generations, by hyperparameters, for models of exploring.

A generation's gain is a difference of two noisy ratings, and that of a short generation is mere
noise: 30 Elo in 500 steps are 60,000 Elo per million. So a model gets shrunken estimates in place
of measured rates: true rates have mean m and variance tau^2, each rate is measured with its own
variance s^2, and the expected true rate is

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
"""Minimum variance of a measurement, as a share of the largest variance: none is exact."""

MIN_RELIABILITY = 0.1
"""Share of the highest k below which a generation is left out, because models weigh all equally."""

LEAST_SIGNAL = 0.1
"""Minimum variance of true rates, as a share of the most exact measurement's variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """Finished generation with the rate at which its rating rose.

    Attributes:
        row: The generation.
        rating_begin: Rating at the beginning, in Elo.
        num_steps: Agent steps over which the gain was measured, above 0.
        rate: Expected true rate by the module's formula, in Elo per million agent steps.
        reliability: The k of the module's docstring, from 0 to 1.
        measured: Measured rate, in Elo per million agent steps.
        deviation: Standard deviation of the measured rate.
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
    """Return the generations that have ended and whose gain is known well enough.

    Args:
        history: Generations in order of beginning.
        names: Hyperparameters for which a generation must have a finite value.
    """
    known = [
        (row, begin, num_steps, rate, deviation)
        for row in history
        if row.agent_steps_end is not None
        and (measured := _measured(row)) is not None
        and _has_all(row, names)
        # The loop over one element unpacks the tuple.
        for begin, num_steps, rate, deviation in (measured,)
    ]
    if not known:
        return ()
    rates = np.array([rate for _, _, _, rate, _ in known])
    believed, reliability = believable(rates, np.array([deviation for *_, deviation in known]))
    # The highest k itself passes, so the answer is empty only if nothing was measured.
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
    """Return rating at the beginning, agent steps, rate, and the rate's deviation.

    None: one of these is unknown.
    """
    begin, end, num_steps = row.rating_begin, row.rating_end, row.gain_agent_steps
    deviation = row.gain_deviation
    # Without its deviation a rate cannot be shrunk, so it is not used.
    if begin is None or end is None or deviation is None or not num_steps:
        return None
    rate, deviation = ((gain * MILLION / num_steps) for gain in (end - begin, deviation))
    if num_steps < 0 or not all(map(math.isfinite, (begin, rate, deviation))):
        return None
    return begin, num_steps, rate, deviation


def believable(rates: FloatArray, deviations: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shrink measured rates towards their mean, the less exact a rate, the more.

    Args:
        rates: Measured rates. float64 [N], N >= 1.
        deviations: Standard deviations of the rates, at least 0. float64 [N].

    Returns:
        Expected true rates, and the k of the module's docstring. float64 [N] each.
    """
    variances = _variances(deviations)
    # All measurements are exact, so they are their own expectation.
    if not variances.any():
        return rates, np.ones_like(rates)
    between = _between(rates, variances)
    reliability = between / (between + variances)
    # The mean has the weights 1 / (tau^2 + s^2), here divided by the largest, so that none
    # overflows.
    random_weights = (between + variances.min()) / (between + variances)
    mean = float(random_weights @ rates / random_weights.sum())
    return mean + reliability * (rates - mean), reliability


def _variances(deviations: FloatArray) -> FloatArray:
    least = MIN_VARIANCE * float((deviations**2).max())
    # Variances this small underflow in products, so all measurements count as exact.
    if least < np.finfo(np.float64).tiny:
        return np.zeros_like(deviations)
    return np.maximum(deviations**2, least)


def _between(rates: FloatArray, variances: FloatArray) -> float:
    """Estimate tau^2 from rates and their variances, which must be above 0; at least 0."""
    weights = variances.min() / variances
    total = weights.sum()
    # DerSimonian and Laird: tau^2 = (Q - (N - 1)) / (sum w - sum w^2 / sum w), with w = 1 / s^2.
    # Weights are multiplied by the smallest variance, so that none overflows.
    spread = weights @ (rates - weights @ rates / total) ** 2 - (len(rates) - 1) * variances.min()
    freedom = total - weights @ weights / total
    return max(float(spread / freedom), 0.0) if freedom > 0.0 else 0.0


def leads(known: Sequence[Improvement]) -> tuple[FloatArray, FloatArray, float]:
    """Compare the rates of finished generations, at least one, with the trend of all rates.

    Rates fall as policies grow strong, whatever their hyperparameters, so that early generations
    would seem the best. So rates are taken relative to a line through all of them over the agent
    steps at which generations began.

    Returns:
        Rates relative to the line, in Elo per million agent steps, and the variances of their
        noise, above 0; float64 [N] each. Variance of the true relative rates, above 0.
    """
    rates = np.array([one.measured for one in known])
    variances = _variances(np.array([one.deviation for one in known]))
    # If all rates are exact, a noise far below their differences is assumed.
    if not variances.any():
        variances = np.full_like(rates, MIN_VARIANCE * (float(np.var(rates)) or 1.0))
    begins = np.array([one.row.agent_steps_begin for one in known]) / MILLION
    # The line is fitted by weighted least squares: rate = a + b begin.
    scale = np.sqrt(variances.min() / variances)
    line = np.column_stack([np.ones_like(begins), begins])
    fitted, *_ = np.linalg.lstsq(line * scale[:, None], rates * scale, rcond=None)
    measured = rates - line @ fitted
    # Where noise hides the spread, tau^2 is 0 and all shrunken rates would be equal. Models need
    # their order, which carries information even then, so a minimum of tau^2 is assumed.
    signal = max(_between(measured, variances), LEAST_SIGNAL * float(variances.min()))
    return measured, variances, signal


def believed_leads(known: Sequence[Improvement]) -> FloatArray:
    """Return the `leads` shrunken towards 0, the less exact a lead, the more. float64 [N]."""
    measured, variances, signal = leads(known)
    return np.asarray(signal / (signal + variances) * measured, dtype=np.float64)


def running(
    history: Iterable[GenerationRow], *, names: Sequence[str] = ()
) -> tuple[GenerationRow, ...]:
    """Return the generations that have not ended: one per policy, the newest."""
    # The history is in order of beginning, so a policy's last row replaces earlier ones.
    newest = {row.policy: row for row in history if row.agent_steps_end is None}
    return tuple(row for row in newest.values() if _has_all(row, names))


def _has_all(row: GenerationRow, names: Iterable[str]) -> bool:
    return all(is_known(row.hyperparameters.get(name)) for name in names)
