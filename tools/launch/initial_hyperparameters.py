"""``arena launch --with-hyperparameters``: policies start from a player's hyperparameters, too.

Tests: `tests/tools/launch/test_initial_hyperparameters.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.config.sections import PopulationConfig

    from .imported_weights import Import


def with_hyperparameters(
    config: RunConfig, resolved: RunConfig, *, imports: Mapping[str, Import]
) -> RunConfig:
    """Return a configuration whose start values are those that players were trained with.

    They take the place of all start values of their populations. A schedule stays, and goes on with
    the player's factor (`Import.factors`). As other start values they may be outside of the bounds
    of the search space.

    Args:
        config: Configuration as loaded.
        resolved: The same, resolved.
        imports: Players by population.

    Raises:
        ConfigError: If a player has learned by another algorithm or with a setting that this one
            does not have. Values are checked when the configuration is resolved again.
    """
    # What the environment decides of populations without a player is decided again.
    populations = {**resolved.populations, **config.populations}
    for name, start in imports.items():
        populations[name] = _started(name, resolved.populations[name], start)
    return config.model_copy(update={"populations": populations})


def _started(name: str, population: PopulationConfig, start: Import) -> PopulationConfig:
    from arena.errors import ConfigError

    trained = start.trained_with
    # Hyperparameters of another algorithm have other names and meanings.
    if trained.algorithm not in (None, population.algorithm):
        raise ConfigError(
            f"{start.origin}: it learned by {trained.algorithm}, population {name} of this run by "
            f"{population.algorithm}"
        )
    schedules = {
        key: value
        for key, value in population.hyperparameters.items()
        if isinstance(value, Mapping)
    }
    values: dict[str, bool | int | float | dict[str, object]] = {}
    settings = dict(population.algorithm_settings)
    for key, value in trained.hyperparameters.items():
        # Settings that PBT changes are among the hyperparameters of a policy.
        if key in settings:
            settings[key] = value
        elif isinstance(value, str):
            raise ConfigError(
                f"populations.{name}.algorithm_settings.{key}: no such setting, got {value!r}"
            )
        else:
            values[key] = value
    return population.model_copy(
        update={"algorithm_settings": settings, "hyperparameters": {**values, **schedules}}
    )
