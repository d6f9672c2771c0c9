"""Search spaces of hyperparameters and settings: what is refused at launch."""

from __future__ import annotations

from collections.abc import Mapping

from arena.config import Model
from arena.errors import ConfigError
from arena.learning.hyperparameters import (
    changeable_settings,
    coerce_hyperparameters,
    make_settings,
)
from arena.types import Hyperparameters
from populations.choices import Categories
from populations.config.sections import PopulationConfig
from populations.core import SearchSpace
from populations.faults import named
from populations.pbt.kinds import ORDERED_ONLY
from populations.search_space import Dimension, validate_search_space

MAX_UNORDERED = 2
"""Choices without an order that are the ends of a scale all the same."""


def check_space(
    population: PopulationConfig,
    model: type[Model],
    settings: Mapping[str, object],
    space: SearchSpace,
    *,
    start: Hyperparameters,
    explore: str,
    launch_directory: str,
    key: str,
) -> tuple[str, ...]:
    """Check a population's search space.

    Args:
        population: Population as written.
        model: Type of the algorithm's hyperparameters.
        settings: Settings of the algorithm, checked and complete; empty if they are at fault.
        space: Search space.
        start: Start values of the hyperparameters.
        explore: Rule of exploring.
        launch_directory: Directory in which a user's algorithm is looked for first.
        key: Name of the population in errors (``populations.player``).

    Returns:
        Settings of the algorithm that PBT may change.

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    path = f"{key}.search_space"
    known = changeable_settings(population.algorithm, launch_directory=launch_directory)
    changeable = tuple(name for name in known if name not in model.model_fields)
    # A setting's own value says whether it is an integer.
    numbers = {
        name: value
        for name, value in settings.items()
        if name in changeable and isinstance(value, int | float)
    }
    dimensions = validate_search_space(
        space,
        names=(*model.model_fields, *changeable),
        start={**numbers, **start},
        key=path,
    )
    _check_explore(explore, dimensions, key=path)
    for name, dimension in dimensions.items():
        if name not in changeable:
            _check_kind(model, name, dimension, entry=space[name], key=path)
            _check_bounds(model, name, dimension, start=start, key=path)
        elif settings:
            _check_setting(
                population, settings, name, dimension, launch_directory=launch_directory, key=key
            )
    return changeable


def check_booleans(model: type[Model], hyperparameters: Mapping[str, object], *, key: str) -> None:
    """Refuse true and false where the algorithm wants a number.

    Raises:
        ConfigError: Names the hyperparameter and its value.
    """
    for name, value in hyperparameters.items():
        if isinstance(value, bool) and model.model_fields[name].annotation is not bool:
            raise ConfigError(f"{key}.{name}: must be a number, got {value!r}")


def _check_kind(
    model: type[Model],
    name: str,
    dimension: Dimension,
    *,
    entry: Mapping[str, object],
    key: str,
) -> None:
    """Refuse choices of another kind than the hyperparameter."""
    is_boolean = model.model_fields[name].annotation is bool
    is_categorical = isinstance(dimension, Categories)
    if is_boolean and not (is_categorical and isinstance(dimension.extremes[0], bool)):
        raise ConfigError(f"{key}.{name}: must be {{choices: [false, true]}}, got {dict(entry)!r}")
    if is_categorical and not is_boolean:
        raise ConfigError(
            f"{key}.{name}: must be {{low, high}} or choices of numbers, as the hyperparameter "
            f"is a number, got {dict(entry)!r}"
        )


def _check_bounds(
    model: type[Model], name: str, dimension: Dimension, *, start: Hyperparameters, key: str
) -> None:
    """Check that PBT can draw nothing that the algorithm would refuse."""
    for value in dimension.extremes:
        try:
            coerce_hyperparameters(model, {**start, name: value})
        except ConfigError as error:
            raise ConfigError(f"{key}.{name} allows {value!r}, but {error}") from error


def _check_setting(
    population: PopulationConfig,
    settings: Mapping[str, object],
    name: str,
    dimension: Dimension,
    *,
    launch_directory: str,
    key: str,
) -> None:
    """Check that a setting of the algorithm may have all values that PBT can draw."""
    values = [dimension.fit(value) for value in dimension.extremes]
    for value in values:
        # The error is quoted with the search space: the setting itself is valid.
        with named(f"{key}.search_space.{name} allows {value!r}, but {key}"):
            make_settings(
                population.algorithm,
                {**settings, name: value},
                launch_directory=launch_directory,
            )
    start = settings[name]
    is_allowed = isinstance(start, int | float) and not isinstance(start, bool)
    if isinstance(dimension, Categories):
        is_allowed = start in dimension.choices
    if start is not None and not is_allowed:
        raise ConfigError(
            f"{key}.algorithm_settings.{name}: must be one of the choices of its search space, "
            f"{values!r}, got {start!r}"
        )


def _check_explore(explore: str, dimensions: Mapping[str, Dimension], *, key: str) -> None:
    """Refuse choices that the population's rule of exploring cannot tell apart."""
    if explore not in ORDERED_ONLY:
        return
    for name, dimension in dimensions.items():
        if isinstance(dimension, Categories) and len(dimension.choices) > MAX_UNORDERED:
            raise ConfigError(
                f"{key}.{name}: pbt.explore {explore} takes at most {MAX_UNORDERED} "
                f"choices without an order (perturb, resample, tpe, cma_es and random take more), "
                f"got {list(dimension.choices)!r}"
            )
