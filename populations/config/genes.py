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
from populations.choices import Categories, code_of
from populations.config.sections import PopulationConfig
from populations.core import SearchSpace
from populations.faults import named
from populations.pbt.kinds import ORDERED_ONLY
from populations.search_space import Choices, parse_search_space, validate_search_space

MAX_UNORDERED = 2
"""Choices without an order that are the ends of a scale all the same."""


def check_space(
    population: PopulationConfig,
    model: type[Model],
    settings: Mapping[str, object],
    space: SearchSpace,
    *,
    start: Hyperparameters,
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
        launch_directory: Directory in which a user's algorithm is looked for first.
        key: Name of the population in errors (``populations.player``).

    Returns:
        Settings of the algorithm that are in the search space.

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    path = f"{key}.search_space"
    known = changeable_settings(population.algorithm, launch_directory=launch_directory)
    changeable = [name for name in known if name not in model.model_fields]
    validate_search_space(space, names=(*model.model_fields, *changeable), start=start, key=path)
    of_settings = {name: entry for name, entry in space.items() if name in changeable}
    of_model = {name: entry for name, entry in space.items() if name not in changeable}
    _check_choices(model, of_model, key=path)
    _check_bounds(model, of_model, start=start, key=path)
    _check_settings(population, settings, of_settings, launch_directory=launch_directory, key=key)
    return tuple(of_settings)


def check_booleans(model: type[Model], hyperparameters: Mapping[str, object], *, key: str) -> None:
    """Refuse true and false where the algorithm wants a number.

    Raises:
        ConfigError: Names the hyperparameter and its value.
    """
    for name, value in hyperparameters.items():
        if isinstance(value, bool) and model.model_fields[name].annotation is not bool:
            raise ConfigError(f"{key}.{name}: must be a number, got {value!r}")


def _check_choices(model: type[Model], space: SearchSpace, *, key: str) -> None:
    """Refuse choices of another kind than the hyperparameter.

    Args:
        model: Type of the algorithm's hyperparameters.
        space: Entries of the search space for them.
        key: Name of the search space in errors (``populations.player.search_space``).

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    for name, dimension in parse_search_space(space, start={}, key=key).items():
        is_boolean = model.model_fields[name].annotation is bool
        are_booleans = isinstance(dimension, Categories) and isinstance(dimension.names[0], bool)
        entry = dict(space[name])
        if is_boolean and not are_booleans:
            raise ConfigError(f"{key}.{name}: must be {{choices: [false, true]}}, got {entry!r}")
        if isinstance(dimension, Categories) and not is_boolean:
            raise ConfigError(
                f"{key}.{name}: must be {{low, high}} or choices of numbers, as the hyperparameter "
                f"is a number, got {entry!r}"
            )


def _check_settings(
    population: PopulationConfig,
    settings: Mapping[str, object],
    space: SearchSpace,
    *,
    launch_directory: str,
    key: str,
) -> None:
    """Check entries of a search space that are about settings of the algorithm.

    Args:
        population: Population as written.
        settings: Its settings, checked and complete; empty if they are at fault.
        space: Entries of the search space for settings.
        launch_directory: Directory in which a user's algorithm is looked for first.
        key: Name of the population in errors (``populations.player``).

    Raises:
        ConfigError: Names the entry, the rule and the value.
    """
    # A setting's own value says whether it is an integer.
    numbers = {name: value for name, value in settings.items() if isinstance(value, int | float)}
    dimensions = parse_search_space(space, start=numbers, key=f"{key}.search_space")
    for name, dimension in dimensions.items() if settings else ():
        values: tuple[object, ...]
        if isinstance(dimension, Categories):
            values = dimension.names
        elif isinstance(dimension, Choices):
            values = dimension.choices
        else:
            values = (dimension.fit(dimension.low), dimension.fit(dimension.high))
        for value in values:
            # Quoted with the search space: the setting itself is valid.
            with named(f"{key}.search_space.{name} allows {value!r}, but {key}"):
                make_settings(
                    population.algorithm,
                    {**settings, name: value},
                    launch_directory=launch_directory,
                )
        start = settings[name]
        if start is not None and code_of(start, space[name]) is None:
            raise ConfigError(
                f"{key}.algorithm_settings.{name}: must be one of the choices of its search space, "
                f"{list(values)!r}, got {start!r}"
            )


def check_explore(population: PopulationConfig, *, key: str) -> None:
    """Refuse choices that the population's rule of exploring cannot tell apart.

    Raises:
        ConfigError: Names the rule and the entry.
    """
    explore = population.pbt.explore if population.pbt is not None else ""
    if explore not in ORDERED_ONLY:
        return
    for name, dimension in parse_search_space(population.search_space, start={}).items():
        if isinstance(dimension, Categories) and len(dimension.names) > MAX_UNORDERED:
            raise ConfigError(
                f"{key}.search_space.{name}: pbt.explore {explore} takes at most {MAX_UNORDERED} "
                f"choices without an order (perturb, resample, tpe, cma_es and random take more), "
                f"got {list(dimension.names)!r}"
            )


def _check_bounds(
    model: type[Model], space: SearchSpace, *, start: Hyperparameters, key: str
) -> None:
    """Check that PBT can draw nothing that the algorithm would refuse."""
    for name, dimension in parse_search_space(space, start=start, key=key).items():
        values = (
            dimension.choices if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        )
        for value in values:
            try:
                coerce_hyperparameters(model, {**start, name: value})
            except ConfigError as error:
                raise ConfigError(f"{key}.{name} allows {value!r}, but {error}") from error
