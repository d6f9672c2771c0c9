"""Measurements of one thing against another, round by round in one process, with the spread.

A machine that is shared or warms up changes its speed by more than most regressions; two rates that
were measured right after one another change together. So only their ratio counts: 1 is the bound.
Statistics are pure functions of rates; functions that read a clock stand apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Something that is measured, and its bound.

    Attributes:
        name: Name of the measurement.
        rate: Measures it once.
        bound_name: Name of the bound.
        bound: Measures the bound once; it counts the same items.
        unit: Unit of the values: ``.../s``, or ``us/...`` for the time of one item.
    """

    name: str
    rate: Rate
    bound_name: str
    bound: Rate
    unit: str = "agent steps/s"


def compare(stage: Stage, *, rounds: int) -> Measurement:
    """Measure something and its bound in turn; every other round the bound goes first.

    Args:
        stage: Both of them.
        rounds: Number of measurements of each, at least 1.

    Raises:
        ValueError: If a rate is not positive.
    """
    rates: list[float] = []
    bound_rates: list[float] = []
    sides = [(rates, stage.rate), (bound_rates, stage.bound)]
    for _ in range(rounds):
        for found, measure in sides:
            found.append(measure())
        # The order alternates: with a fixed one, a machine that steadily slows down favours the
        # first.
        sides.reverse()
    for rate in (*rates, *bound_rates):
        # `not >` instead of `<=` refuses NaN, too.
        if not rate > 0.0:
            raise ValueError(f"a rate must be greater than 0, got {rate!r} in {stage.name}")
    # The ratio is taken per round, because both sides of a round saw the same machine.
    ratios = [rate / bound for rate, bound in zip(rates, bound_rates, strict=True)]
    return Measurement(
        name=stage.name,
        value=_in_unit(median(rates), unit=stage.unit),
        unit=stage.unit,
        bound_name=stage.bound_name,
        bound_value=_in_unit(median(bound_rates), unit=stage.unit),
        ratio=median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        rounds=rounds,
    )


def _in_unit(rate: float, *, unit: str) -> float:
    # A unit of microseconds per item is the inverse of a rate.
    return MICROSECONDS / rate if unit.startswith("us/") else rate


def harmonic(*rates: float) -> float:
    """Return the items per second of something that does one item of each after the other."""
    # Times add up: 1 / r = sum_i 1 / r_i
    return 1.0 / sum(1.0 / rate for rate in rates)


def timed(work: Work, *, seconds: float, clock: Clock = time.perf_counter) -> tuple[int, float]:
    """Repeat a work for at least so long, at least once: its items, and the seconds they took."""
    items = 0
    started = clock()
    while True:
        items += work()
        # The clock is read after the work, so that the last call is counted whole.
        elapsed = clock() - started
        if elapsed >= seconds:
            return items, elapsed


def warm_rate(work: Work, *, seconds: float, clock: Clock = time.perf_counter) -> Rate:
    """Return a measurement of the items per second, after one call of the work that does not
    count.
    """
    # First calls allocate and import.
    work()

    def rate() -> float:
        items, elapsed = timed(work, seconds=seconds, clock=clock)
        return items / elapsed

    return rate
