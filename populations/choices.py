"""Hyperparameters and settings that take one of a few values.

Choices that are numbers have an order, and each has neighbours. Texts and booleans have no order.

Tests: `tests/populations/test_search_space.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from arena.errors import ConfigError
from arena.types import Hyperparameters, Value
from populations.core import SearchSpace


def number_of(value: Value) -> float:
    """Return a value as a number; NaN if it is text."""
    return math.nan if isinstance(value, str) else value


def is_known(value: Value | None) -> TypeGuard[Value]:
    """Return whether a value is known: text, a boolean, or a finite number, but not None."""
    return isinstance(value, str) or (value is not None and math.isfinite(value))


def kinds(values: Hyperparameters) -> dict[str, type]:
    """Return the type of each value by name, float for all numbers."""
    return {
        name: type(value) if isinstance(value, bool | str) else float
        for name, value in values.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Dimension whose values are a few numbers, in the order given."""

    choices: tuple[Value, ...]

    def place(self, value: Value | None) -> int | None:
        """Return the position of a value; None if it is no choice."""
        # Python says that True equals 1, but they are different choices.
        same = (
            place
            for place, choice in enumerate(self.choices)
            if choice == value and isinstance(choice, bool) == isinstance(value, bool)
        )
        return next(same, None)

    def sample(self, rng: np.random.Generator) -> Value:
        """Draw a choice uniformly."""
        return self.choices[int(rng.integers(len(self.choices)))]

    def quantile(self, share: float) -> Value:
        """Return the choice below which a share in [0, 1) of samples lies."""
        return self.choices[int(share * len(self.choices))]

    def perturb(self, value: Value, *, factor: float, rng: np.random.Generator) -> Value:
        """Return the next choice, or the previous one for a factor below 1; a random choice if the
        value is none.
        """
        place = self.place(value)
        # A start value may be outside of the search space.
        if place is None:
            return self.sample(rng)
        # The step is 1, 0 or -1, so a factor of 1 changes nothing.
        step = (factor > 1.0) - (factor < 1.0)
        # There is no neighbour beyond an end, so the first and the last choice stay.
        return self.choices[min(max(place + step, 0), len(self.choices) - 1)]

    def fit(self, value: Value) -> Value:
        """Return the nearest choice, the first of two equally near."""
        return min(self.choices, key=lambda choice: abs(number_of(choice) - number_of(value)))

    def to_unit(self, value: Value) -> float:
        """Return the position of the nearest choice, from 0 (first) to 1 (last)."""
        # The maximum avoids a division by 0 for a single choice.
        return self.choices.index(self.fit(value)) / max(len(self.choices) - 1, 1)

    def from_unit(self, position: float) -> Value:
        """Return the choice nearest to a position in [0, 1]."""
        return self.choices[round(min(max(position, 0.0), 1.0) * (len(self.choices) - 1))]

    @property
    def extremes(self) -> tuple[Value, ...]:
        """Return the values that represent all in checks: every choice."""
        return self.choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories(Choices):
    """Dimension whose values are a few texts, or true and false, without an order."""

    def perturb(self, value: Value, *, factor: float, rng: np.random.Generator) -> Value:
        """Return another choice, or with probability 1/2 (always if factor is 1) the value."""
        if self.place(value) is None:
            return self.sample(rng)
        others = [choice for choice in self.choices if choice != value]
        # A switch is a large step. If every exploration switched, no copy would keep the choice
        # of its donor.
        if not others or factor == 1.0 or rng.random() < 0.5:
            return value
        return others[int(rng.integers(len(others)))]

    def fit(self, value: Value) -> Value:
        """Return the value, or the first choice if the value is no choice."""
        return self.choices[self.place(value) or 0]


def parse_categories(choices: Sequence[object], *, key: str) -> Categories | None:
    """Return choices that are all texts or all booleans; None if they are neither.

    Raises:
        ConfigError: If a choice occurs twice.
    """
    names = tuple(choice for choice in choices if isinstance(choice, bool | str))
    if not names or len(names) < len(choices) or len({type(name) for name in names}) > 1:
        return None
    if len(set(names)) < len(names):
        raise ConfigError(f"{key}: must be different, got {list(names)!r}")
    return Categories(choices=names)


def figures(values: Hyperparameters, search_space: SearchSpace) -> dict[str, float]:
    """Return values as numbers that can be plotted; a text becomes its index in the choices."""
    found: dict[str, float] = {}
    for name, value in values.items():
        choices = search_space.get(name, {}).get("choices")
        if not isinstance(value, str):
            # The sign turns True into 1.
            found[name] = +value
        elif isinstance(choices, list | tuple) and value in choices:
            found[name] = choices.index(value)
    return found
