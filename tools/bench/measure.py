"""Measurements of one thing against another, round by round in one process, with the spread.

A machine that is shared or warms up changes its speed by more than most regressions; two rates that
were measured right after one another change together. So only their ratio counts: 1 is the bound.
Statistics are pure functions of rates; functions that read a clock stand apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from arena.types import Count, Document, Finite

MICROSECONDS = 1e6

Work = Callable[[], int]
"""Function that does a piece of work and returns its number of items (decisions, rows)."""

Clock = Callable[[], float]
Rate = Callable[[], float]
"""Function that measures once: items per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of the measurements.

    Attributes:
        rounds: Rounds per measurement.
        seconds: Least seconds of each side per round, and of the pass that finds the shares.
        run_seconds: Seconds of each whole run after its start-up, and of each bound.
    """

    rounds: int
    seconds: float
    run_seconds: float


class Measurement(Document, frozen=True, kw_only=True):
    """A rate or a time, and its ratio to a bound.

    Attributes:
        name: Name of the measurement.
        value: Median over the rounds, in ``unit``.
        unit: ``.../s``, more is better; or ``us/...``, less is better.
        bound_name: Name of the bound.
        bound_value: Median of the bound, likewise.
        ratio: Share of the bound that is reached, median over the rounds; more is better.
        ratio_low: Ratio of the worst round.
        ratio_high: Ratio of the best round.
        rounds: Number of rounds.
    """

    name: str
    value: Finite
    unit: str
    bound_name: str
    bound_value: Finite
    ratio: Finite
    ratio_low: Finite
    ratio_high: Finite
    rounds: Count


def summarize(
    name: str,
    *,
    unit: str,
    bound_name: str,
    rates: Sequence[float],
    bound_rates: Sequence[float],
) -> Measurement:
    """Compare rates with those of a bound, round by round.

    Args:
        name: Name of the measurement.
        unit: Unit of the values: ``.../s``, or ``us/...`` for the time of one item.
        bound_name: Name of the bound.
        rates: Items per second, one for each round.
        bound_rates: Items per second of the bound in the same rounds.

    Raises:
        ValueError: If there is no round, the numbers of rounds differ, or a rate is not positive.
    """
    if not rates or len(rates) != len(bound_rates):
        raise ValueError(
            f"a comparison needs as many rates as bounds, at least one, got {len(rates)} and "
            f"{len(bound_rates)}"
        )
    for rate in (*rates, *bound_rates):
        # Not `<=`, so that NaN is refused, too.
        if not rate > 0.0:
            raise ValueError(f"a rate must be greater than 0, got {rate!r} in {name}")
    # Ratios of rounds, not of medians: both sides of a round saw the same machine.
    ratios = [rate / bound for rate, bound in zip(rates, bound_rates, strict=True)]
    return Measurement(
        name=name,
        value=_in_unit(median(rates), unit=unit),
        unit=unit,
        bound_name=bound_name,
        bound_value=_in_unit(median(bound_rates), unit=unit),
        ratio=median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        rounds=len(ratios),
    )


def _in_unit(rate: float, *, unit: str) -> float:
    # A time per item is the inverse of a rate.
    return MICROSECONDS / rate if unit.startswith("us/") else rate


def harmonic(*rates: float) -> float:
    """Return the items per second of something that does one item of each after the other."""
    # Times add up: 1 / r = sum_i 1 / r_i
    return 1.0 / sum(1.0 / rate for rate in rates)


def timed_rate(work: Work, *, seconds: float, clock: Clock = time.perf_counter) -> float:
    """Repeat a work for at least so long, at least once, and return its items per second."""
    items = 0
    started = clock()
    while True:
        items += work()
        # Looked at after the work, so that a work that takes longer is counted whole.
        elapsed = clock() - started
        if elapsed >= seconds:
            return items / elapsed


def alternate(first: Rate, second: Rate, *, rounds: int) -> tuple[list[float], list[float]]:
    """Measure two things in turn; every other round the second one goes first."""
    firsts: list[float] = []
    seconds: list[float] = []
    for index in range(rounds):
        # With a fixed order a machine that steadily slows down would favour the first.
        if index % 2 == 0:
            firsts.append(first())
            seconds.append(second())
        else:
            seconds.append(second())
            firsts.append(first())
    return firsts, seconds


def warm_rate(work: Work, *, seconds: float, clock: Clock = time.perf_counter) -> Rate:
    """Return a measurement by `timed_rate`, after one call of the work that does not count."""
    # First calls allocate and import.
    work()
    return partial(timed_rate, work, seconds=seconds, clock=clock)


def compare(
    name: str, *, unit: str, rate: Rate, bound_name: str, bound: Rate, rounds: int
) -> Measurement:
    """Measure something and its bound in turn.

    Args:
        name: Name of the measurement.
        unit: Unit of its items, see `Measurement`.
        rate: Measures once.
        bound_name: Name of the bound.
        bound: Measures the bound once; it counts the same items.
        rounds: Number of measurements of each.
    """
    rates, bound_rates = alternate(rate, bound, rounds=rounds)
    return summarize(name, unit=unit, bound_name=bound_name, rates=rates, bound_rates=bound_rates)
