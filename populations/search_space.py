"""Hyperparameters that PBT may change, and their bounds.

A hyperparameter's entry is ``{low, high, log, step, complement, factors, uniform}`` or
``{choices: [...]}`` with numbers, texts, or true and false (`populations.choices`).
``complement`` is for hyperparameters whose effect follows 1 - x (``gamma``: its horizon is
1 / (1 - gamma)). Bounds are those of x, but perturbing, ``log`` and sampling use 1 - x.

A hyperparameter is integral if its start value is an integer, however its bounds are written:
``gae_lambda: {low: 0, high: 1}`` is an interval, not a choice of 0 or 1.

Perturbing multiplies this hyperparameter by one of its ``factors`` instead of those of ``pbt``, or
by a factor drawn between the ends of ``uniform: [a, b]``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from arena.errors import ConfigError
from arena.rules import nearest
from arena.types import Hyperparameters, Value
from populations.choices import Choices as Choices
from populations.choices import number_of, parse_categories
from populations.core import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANGE_KEYS = ("low", "high", "log", "step", "complement", "factors", "uniform")
LEAST_STEP = 0.01
"""Fraction of a range by which perturbing moves 0 (1 with ``complement``) if it has no steps."""

MAX_FACTORS = 16
UNIFORM_RULE = "must be [a, b] with 0 < a < 1 < b (of others values would only rise, or only fall)"
MAX_NUMBER = 1e300
"""Larger bounds would overflow when multiplied."""

MAX_STEPS = 2**53
"""Float64 cannot distinguish more steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The numbers from ``low`` to ``high``, both included.

    Attributes:
        low: Smallest value.
        high: Largest value; with a step, the largest that the steps reach.
        log: Whether sampling is log-uniform, so that equal ratios are equally likely.
        step: Distance of the values low, low + step, and so on; None allows all numbers.
        complement: Whether perturbing, sampling and ``log`` use 1 - x.
        integral: Whether values are integers (``int``).
        factors: Factors of perturbing in place of those of ``pbt``; None uses those of ``pbt``.
        uniform: Ends between which a factor is drawn, in place of ``factors``; None does not.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    complement: bool = False
    integral: bool = False
    factors: tuple[float, ...] | None = None
    uniform: tuple[float, float] | None = None

    def sample(self, rng: np.random.Generator) -> float:
        """Draw from Optuna's distribution of the same bounds, log and step."""
        if self.integral and self.log:
            # As in Optuna, widen the range by half a unit at both ends and round the draw, so that
            # the first and the last integer get their share.
            return self.fit(_log_uniform(self.low - 0.5, self.high + 0.5, rng))
        if self.step is not None:
            num_steps = round((self.high - self.low) / self.step)
            # `fit` turns the point of an integral range into an int.
            return self.fit(_grid_point(self.low, self.step, int(rng.integers(num_steps + 1))))
        # With complement, 1 - low is the upper end and 1 - high the lower one.
        low, high = self._turn(self.low), self._turn(self.high)
        if self.log:
            return self.fit(self._turn(_log_uniform(min(low, high), max(low, high), rng)))
        return self.fit(self._turn(low + (high - low) * float(rng.random())))

    def quantile(self, share: float) -> float:
        """Return the value below which a share in [0, 1) of samples lies."""
        if self.step is not None and not self.log:
            num_steps = round((self.high - self.low) / self.step)
            return self.fit(_grid_point(self.low, self.step, int(share * (num_steps + 1))))
        return self.from_unit(share)

    def perturb(self, value: Value, *, factor: float, rng: np.random.Generator) -> float:
        """Multiply x by ``factor``, or 1 - x with ``complement``; draw anew if x is not finite.

        With steps (integers have steps of 1) the result is at least one step away, in the direction
        of the factor, unless a bound prevents it. No factor moves 0, so from there a range without
        steps moves by a hundredth of its width (``LEAST_STEP``).
        """
        value = number_of(value)
        # A hyperparameter without a value is NaN.
        if not math.isfinite(value):
            return self.sample(rng)
        # The value in use may be outside of the bounds.
        start = self.fit(value)
        # x' = f x, or 1 - f (1 - x) with complement.
        moved = self.fit(self._turn(self._turn(value) * factor))
        step = self.step
        if step is None and self._turn(start) == 0.0:
            step = LEAST_STEP * (self.high - self.low)
        if step is not None and moved == start:
            # Rounding has undone the move, as both 2 * 1.2 and 2 * 0.8 are rounded to 2.
            direction = (factor > 1.0) - (factor < 1.0)
            moved = self.fit(start + direction * step * (-1 if self.complement else 1))
        return moved

    def fit(self, value: Value) -> float:
        """Return the nearest value in the range; the lowest value for a text."""
        value = min(max(self.low, number_of(value)), self.high)
        if self.step is not None:
            value = _grid_point(self.low, self.step, round((value - self.low) / self.step))
        return round(value) if self.integral else float(value)

    def to_unit(self, value: Value) -> float:
        """Return the position of the nearest value between the bounds, in [0, 1].

        The scale is that of sampling: logarithmic with ``log``. With ``complement``, 0 is the end
        at which 1 - x is smallest.
        """
        low, high = self._scaled_bounds()
        position = self._scale(self._turn(self.fit(value)))
        # A range with a single value has no width; its position is 0.
        return min(max((position - low) / (high - low), 0.0), 1.0) if high > low else 0.0

    def from_unit(self, position: float) -> float:
        """Return the value nearest to a position in [0, 1]."""
        low, high = self._scaled_bounds()
        scaled = low + (high - low) * min(max(position, 0.0), 1.0)
        return self.fit(self._turn(math.exp(scaled) if self.log else scaled))

    @property
    def extremes(self) -> tuple[float, ...]:
        """Return the values that represent all in checks: both ends."""
        return self.low, self.high

    @property
    def complement_bounds(self) -> tuple[float, float]:
        """Bounds of 1 - x, computed in decimal: exactly 0.1 for a ``high`` of 0.9."""
        return float(1 - _exact(self.high)), float(1 - _exact(self.low))

    def _scaled_bounds(self) -> tuple[float, float]:
        ends = self._scale(self._turn(self.low)), self._scale(self._turn(self.high))
        return min(ends), max(ends)

    def _scale(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _turn(self, value: float) -> float:
        return 1.0 - value if self.complement else value


Dimension = Range | Choices


def _exact(number: float) -> Decimal:
    """Return the number as it is written: exactly 0.1, not the nearest float64."""
    return Decimal(str(number))


def _grid_point(low: float, step: float, num_steps: int) -> float:
    """Return a point of the grid, in decimal as in Optuna: three steps of 0.1 are exactly 0.3."""
    return float(_exact(low) + num_steps * _exact(step))


def _log_uniform(low: float, high: float, rng: np.random.Generator) -> float:
    return math.exp(float(rng.uniform(math.log(low), math.log(high))))


def parse_search_space(
    space: SearchSpace, *, start: Hyperparameters, key: str = "search_space"
) -> dict[str, Dimension]:
    """Parse the entries of a search space, as read from YAML.

    Args:
        space: Search space by hyperparameter.
        start: Values in use. A hyperparameter is integral if its value is an int; without a value,
            if its bounds and its step are.
        key: Name of the search space in errors.

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    return {
        name: _parse(entry, value=start.get(name), key=f"{key}.{name}")
        for name, entry in space.items()
    }


def validate_search_space(
    space: SearchSpace,
    *,
    names: Collection[str],
    start: Hyperparameters,
    key: str = "search_space",
) -> dict[str, Dimension]:
    """Parse a population's search space, and check it. Start values may be outside of its bounds.

    Args:
        space: Search space by hyperparameter.
        names: All hyperparameters of the algorithm.
        start: Start values of the hyperparameters, those that are null left out.
        key: Name of the search space in errors (``populations.player.search_space``).

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    for name in space:
        if name not in names:
            raise ConfigError(f"{key}.{name}: no such hyperparameter{nearest(name, names)}")
    dimensions = parse_search_space(space, start=start, key=key)
    try:
        optuna_distributions(dimensions)
    # Optuna has further rules about ranges; breaking one is a mistake of the user, too.
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error
    return dimensions


def optuna_distributions(dimensions: Mapping[str, Dimension]) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions; with ``complement`` they are distributions of 1 - x."""
    return {name: _optuna_distribution(dimension) for name, dimension in dimensions.items()}


def _optuna_distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.choices)
    low, high = dimension.low, dimension.high
    if dimension.integral:
        return IntDistribution(
            int(low), int(high), log=dimension.log, step=int(dimension.step or 1)
        )
    if dimension.complement:
        # Optuna applies `log` to its own numbers, so these have to be 1 - x.
        low, high = dimension.complement_bounds
    return FloatDistribution(low, high, log=dimension.log, step=dimension.step)


def _parse(entry: object, *, value: Value | None, key: str) -> Dimension:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{key}: must be {{low, high}} or {{choices}}, got {entry!r}")
    if "choices" in entry:
        if len(entry) > 1:
            raise ConfigError(f"{key}: choices must stand alone, got {', '.join(map(str, entry))}")
        return _parse_choices(entry["choices"], value=value, key=f"{key}.choices")
    for name in entry:
        if name not in RANGE_KEYS:
            known = (*RANGE_KEYS, "choices")
            raise ConfigError(f"{key}.{name}: no such key{nearest(str(name), known)}")
    for name in ("low", "high"):
        if name not in entry:
            raise ConfigError(f"{key}: {name} is missing")
    return _parse_range(entry, value=value, key=key)


def _parse_choices(choices: object, *, value: Value | None, key: str) -> Choices:
    if not isinstance(choices, (list, tuple)) or not choices:
        raise ConfigError(f"{key}: must be a list of one or more numbers, got {choices!r}")
    categories = parse_categories(choices, key=key)
    if categories is not None:
        return categories
    numbers = tuple(_number(choice, key=key) for choice in choices)
    if len(set(numbers)) != len(numbers):
        raise ConfigError(f"{key}: must be different numbers, got {list(numbers)!r}")
    if isinstance(value, float):
        return Choices(choices=tuple(float(number) for number in numbers))
    if isinstance(value, int):
        if any(number != int(number) for number in numbers):
            raise ConfigError(f"{key}: must be integers, got {list(numbers)!r}")
        return Choices(choices=tuple(int(number) for number in numbers))
    return Choices(choices=numbers)


def _parse_range(entry: Mapping[str, object], *, value: Value | None, key: str) -> Range:
    low, high = _number(entry["low"], key=f"{key}.low"), _number(entry["high"], key=f"{key}.high")
    log, complement = _flag(entry, "log", key=key), _flag(entry, "complement", key=key)
    raw_step = entry.get("step")
    step = None if raw_step is None else _number(raw_step, key=f"{key}.step")
    # A null value has no type, so the notation of the bounds decides.
    is_written_integral = all(isinstance(n, int) for n in (low, high, 1 if step is None else step))
    integral = isinstance(value, int) if value is not None else is_written_integral
    _check_range(low=low, high=high, step=step, log=log, complement=complement, key=key)
    if integral:
        low, high, step = _integral_bounds(low, high, step, key=key)
        if complement:
            raise ConfigError(f"{key}.complement: must be false for an integer")
    if step is not None:
        # In float64 (0.3 - 0.1) / 0.1 is slightly less than 2, so compute in decimal.
        num_steps = math.floor((_exact(high) - _exact(low)) / _exact(step))
        if num_steps > MAX_STEPS:
            raise ConfigError(f"{key}.step: at most {MAX_STEPS} steps, got {num_steps}")
        # As in Optuna, the upper bound becomes the largest value that the steps reach.
        high = _grid_point(low, step, num_steps)
    return Range(
        low=low,
        high=high,
        log=log,
        step=step,
        complement=complement,
        integral=integral,
        factors=_factors(entry.get("factors"), key=f"{key}.factors"),
        uniform=_uniform(entry, key=key),
    )


def spans_one(ends: Sequence[float]) -> bool:
    """Return whether factors between two ends can both raise and lower a value."""
    return len(ends) == 2 and 0.0 < ends[0] < 1.0 < ends[1]


def _uniform(entry: Mapping[str, object], *, key: str) -> tuple[float, float] | None:
    value = entry.get("uniform")
    if value is None:
        return None
    if entry.get("factors") is not None:
        raise ConfigError(f"{key}: factors and uniform exclude each other, got {dict(entry)!r}")
    ends = value if isinstance(value, (list, tuple)) else ()
    numbers = [float(_number(end, key=f"{key}.uniform")) for end in ends]
    if not spans_one(numbers):
        raise ConfigError(f"{key}.uniform: {UNIFORM_RULE}, got {value!r}")
    return numbers[0], numbers[1]


def _factors(value: object, *, key: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= MAX_FACTORS:
        raise ConfigError(f"{key}: must be a list of 1 to {MAX_FACTORS} numbers, got {value!r}")
    factors = tuple(float(_number(factor, key=key)) for factor in value)
    if min(factors) <= 0.0:
        raise ConfigError(f"{key}: every factor must be greater than 0, got {list(value)!r}")
    return factors


def _check_range(
    *, low: float, high: float, step: float | None, log: bool, complement: bool, key: str
) -> None:
    if low > high:
        raise ConfigError(f"{key}: low must be at most high, got low {low!r} and high {high!r}")
    if complement and (low < 0.0 or high > 1.0):
        raise ConfigError(
            f"{key}: low and high must be in [0, 1] where complement is true, "
            f"got {low!r} and {high!r}"
        )
    # log(1 - x) is infinite at x = 1.
    if log and complement and high >= 1.0:
        raise ConfigError(f"{key}.high: must be below 1 where log is about 1 - x, got {high!r}")
    if log and not complement and low <= 0.0:
        raise ConfigError(f"{key}.low: must be above 0 where log is true, got {low!r}")
    if step is not None and step <= 0.0:
        raise ConfigError(f"{key}.step: must be above 0, got {step!r}")
    if step is not None and log:
        raise ConfigError(f"{key}: step and log exclude each other, got step {step!r}")


def _integral_bounds(
    low: float, high: float, step: float | None, *, key: str
) -> tuple[int, int, int]:
    if step is not None and step != int(step):
        raise ConfigError(f"{key}.step: must be an integer, got {step!r}")
    # Round inwards, so that no integer is outside of the bounds that the user wrote.
    whole_low, whole_high = math.ceil(low), math.floor(high)
    if whole_low > whole_high:
        raise ConfigError(f"{key}: there is no integer from {low!r} to {high!r}")
    return whole_low, whole_high, 1 if step is None else int(step)


def _number(value: object, *, key: str) -> float:
    """Return a finite number of a sane size; a bool is refused, though Python counts it as int."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{key}: must be a number, got {value!r}")
    if not abs(value) <= MAX_NUMBER:  # NaN fails this comparison, too.
        raise ConfigError(f"{key}: must be a number within +-{MAX_NUMBER:g}, got {value!r}")
    return value


def _flag(entry: Mapping[str, object], name: str, *, key: str) -> bool:
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{key}.{name}: must be true or false, got {value!r}")
    return value
