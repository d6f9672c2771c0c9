"""Hyperparameters and settings that are one of a few values.

Numbers are ordered: they lie between their neighbours. Text and true or false are not; rows,
messages and rules have a number in their place, which is 0 or 1 for false and true, and for text
the position in the list of the search space. Names are put in their places where people look.

Tests: `tests/populations/test_choices.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena.errors import ConfigError
from populations.core import SearchSpace

Name = bool | str
"""Choice that is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """One of a few numbers, in the order given."""

    choices: tuple[float, ...]

    def sample(self, rng: np.random.Generator) -> float:
        """Draw uniformly."""
        return self.choices[int(rng.integers(len(self.choices)))]

    def quantile(self, share: float) -> float:
        """Return the choice below which a share in [0, 1) of samples lies."""
        return self.choices[int(share * len(self.choices))]

    def perturb(self, value: float, *, factor: float, rng: np.random.Generator) -> float:
        """Return the neighbour towards ``factor``; a random choice if the value is none."""
        # Start values may be outside of the search space.
        if value not in self.choices:
            return self.sample(rng)
        # 1, 0 or -1: a factor of 1 stays.
        step = (factor > 1.0) - (factor < 1.0)
        index = self.choices.index(value) + step
        # At an end it stays.
        return self.choices[min(max(index, 0), len(self.choices) - 1)]

    def fit(self, value: float) -> float:
        """Return the nearest choice, the first of two equally near."""
        return min(self.choices, key=lambda choice: abs(choice - value))

    def to_unit(self, value: float) -> float:
        """Return the position of the nearest choice, from 0 (first) to 1 (last)."""
        # A single choice is at 0.
        return self.choices.index(self.fit(value)) / max(len(self.choices) - 1, 1)

    def from_unit(self, position: float) -> float:
        """Return the choice nearest to a position in [0, 1]."""
        return self.choices[round(min(max(position, 0.0), 1.0) * (len(self.choices) - 1))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories(Choices):
    """One of a few values without an order; ``choices`` are the numbers that stand for them.

    Attributes:
        names: The values, in the order of ``choices``.
    """

    names: tuple[Name, ...]

    def perturb(self, value: float, *, factor: float, rng: np.random.Generator) -> float:
        """Return one of the others, or as often the value itself; itself with a factor of 1."""
        if value not in self.choices:
            return self.sample(rng)
        others = [choice for choice in self.choices if choice != value]
        # There are no small steps: if it always switched, no copy would keep what its donor had.
        if not others or factor == 1.0 or rng.random() < 0.5:
            return value
        return others[int(rng.integers(len(others)))]

    def code_of(self, name: object) -> float | None:
        """Return the number that stands for a value; None if it is no choice."""
        # By type as well: True is 1.
        same = (
            code
            for code, known in zip(self.choices, self.names, strict=True)
            if type(known) is type(name) and known == name
        )
        return next(same, None)


def parse_categories(choices: Sequence[object], *, key: str) -> Categories | None:
    """Return choices that are text, or true and false; None if they are neither.

    Raises:
        ConfigError: If one stands there twice.
    """
    names = tuple(choice for choice in choices if isinstance(choice, bool | str))
    if not names or len(names) < len(choices) or len({type(name) for name in names}) > 1:
        return None
    if len(set(names)) < len(names):
        raise ConfigError(f"{key}: must be different, got {list(names)!r}")
    if isinstance(names[0], bool):
        return Categories(choices=tuple(int(name) for name in names), names=names)
    return Categories(choices=tuple(range(len(names))), names=names)


def code_of(value: object, entry: Mapping[str, object]) -> float | None:
    """Return the number that stands for a setting's value, by its entry in the search space.

    None for null, and for a value that is no choice.
    """
    choices = entry.get("choices")
    listed = choices if isinstance(choices, list | tuple) else ()
    categories = parse_categories(listed, key="choices")
    if categories is not None:
        return categories.code_of(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None  # type: ignore[return-value]


def with_names(
    values: Mapping[str, float], search_space: SearchSpace
) -> dict[str, float | bool | str]:
    """Return values as people read them: names in the places of the numbers that stand for them."""
    named: dict[str, float | bool | str] = dict(values)
    for name, value in values.items():
        choices = search_space.get(name, {}).get("choices")
        if isinstance(choices, list | tuple):
            categories = parse_categories(choices, key=name)
            if categories is not None and value in categories.choices:
                named[name] = categories.names[categories.choices.index(value)]
    return named
