"""``arena launch --with-hyperparameters``: policies start from a player's hyperparameters, too.

Tests: `tests/tools/launch/test_initial_hyperparameters.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from arena.rules import shown
from populations.config.overrides.aliases import Notify, overridden

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.config.sections import PopulationConfig

    from .imported_weights import Import


def with_hyperparameters(
    config: RunConfig,
    resolved: RunConfig,
    *,
    imports: Mapping[str, Import],
    overrides: Sequence[str],
    notify: Notify,
) -> RunConfig:
    """Return a configuration whose start values are those that players were trained with.

    They take the place of all start values of their populations, but for those that the command
    line gives. A schedule stays, and goes on with the player's factor (`Import.factors`). As other
    start values they may be outside of the bounds of the search space.

    Args:
        config: Configuration as loaded.
        resolved: The same, resolved.
        imports: Players by population.
        overrides: ``KEY=VALUE`` of the command line, which ``config`` has.
        notify: Takes a sentence for each value of a player that gives way to one of these.

    Raises:
        ConfigError: If a player has learned by another algorithm or with a setting that this one
            does not have. Values are checked when the configuration is resolved again.
    """
    given = overridden({}, overrides, notify=lambda _: None)
    # What the environment decides of populations without a player is decided again.
    populations = {**resolved.populations, **config.populations}
    for name, start in imports.items():
        populations[name] = _started(
            name, resolved.populations[name], start, given=_below(given, name), notify=notify
        )
    return config.model_copy(update={"populations": populations})


def _below(given: object, population: str) -> set[str]:
    """Return the hyperparameters and settings of a population that a document gives."""
    for part in ("populations", population):
        given = given.get(part) if isinstance(given, dict) else None
    places = ("hyperparameters", "algorithm_settings")
    found = [given.get(place) for place in places] if isinstance(given, dict) else []
    return {name for one in found if isinstance(one, dict) for name in one}


def _started(
    name: str,
    population: PopulationConfig,
    start: Import,
    *,
    given: Collection[str],
    notify: Notify,
) -> PopulationConfig:
    from arena.errors import ConfigError

    trained = start.trained_with
    # Hyperparameters of another algorithm have other names and meanings.
    if trained.algorithm not in (None, population.algorithm):
        raise ConfigError(
            f"{start.origin}: it learned by {trained.algorithm}, population {name} of this run by "
            f"{population.algorithm}"
        )
    stays = {
        key: value
        for key, value in population.hyperparameters.items()
        if isinstance(value, Mapping) or key in given
    }
    values: dict[str, bool | int | float | dict[str, object]] = {}
    settings = dict(population.algorithm_settings)
    for key, value in trained.hyperparameters.items():
        if key in given:
            own = settings.get(key, stays.get(key))
            notify(
                f"{key} of {name} is {shown(own)}, as given, not {shown(value)} of {start.policy}"
            )
            continue
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
        update={"algorithm_settings": settings, "hyperparameters": {**values, **stays}}
    )
