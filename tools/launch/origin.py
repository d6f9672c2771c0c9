"""Origins of a new run in other runs: players' weights and hyperparameters, a policy's schedule.

Tests: `tests/tools/launch/test_origin.py`, `tests/tools/launch/test_initial_hyperparameters.py`,
`tests/integration/test_evolution.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.rules import shown

if TYPE_CHECKING:
    from arena.environment_spec import EnvironmentSpec
    from populations.config.overrides import Notify
    from populations.config.run_config import RunConfig
    from populations.config.sections import PopulationConfig

    from .imported_weights import Import


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origins of a run in other runs: players' weights, a policy's schedule.

    Attributes:
        init_from: Players whose weights policies start from, as PLAYER or POPULATION=PLAYER.
        with_hyperparameters: Whether policies start from these players' hyperparameters, too.
        replay: Policy whose hyperparameter schedule is followed.
    """

    init_from: tuple[str, ...] = ()
    with_hyperparameters: bool = False
    replay: str | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing comes from other runs."""
        return self == Origin()

    @property
    def said(self) -> str | None:
        """Players of ``--init-from``, as run.yaml names them; None: there are none."""
        return ", ".join(self.init_from) or None

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            ConfigError: Names them.
        """
        if not self.with_hyperparameters:
            return
        if not self.init_from:
            raise ConfigError(
                "--with-hyperparameters needs --init-from: the player that the values come from"
            )
        if self.replay is not None:
            raise ConfigError(
                "--with-hyperparameters and --schedule-of exclude each other: a schedule begins "
                f"with hyperparameters of its own, got --schedule-of {self.replay}"
            )


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
    from populations.config.overrides import overridden

    given = overridden({}, overrides, notify=lambda _: None)
    # Populations without imported weights are resolved again with the environment.
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


_POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")


def replaying(
    config: RunConfig, spec: EnvironmentSpec, player: str, *, launch_directory: str
) -> RunConfig:
    """Return a configuration in which one policy follows a recorded schedule.

    Its population has that policy alone, and nothing is exploited or explored in it. Whatever else
    the configuration says holds, ``stop`` too.

    Args:
        config: Configuration as loaded.
        spec: The environment's facts.
        player: ``RUN:player/p003``: whose schedule.
        launch_directory: First directory in which user code is looked for.

    Raises:
        ConfigError: If there is no such policy, or it is of another environment or population.
    """
    from arena.learning.hyperparameters import changeable_settings
    from populations.config.resolve import assign_agents
    from populations.league.lineage import schedule_of
    from populations.pbt.settings import PbtConfig
    from populations.views.questions.inspection import Inspection

    # The last colon separates the policy: a path may contain colons, a policy's id does not.
    run, _, policy = player.rpartition(":")
    if not _POLICY.fullmatch(policy) or not (Path(run) / "run.yaml").is_file():
        raise ConfigError(
            f"--schedule-of must be RUN:POLICY, as in runs/a:player/p003, got {player!r}"
        )
    said, name = f"--schedule-of {player}", policy.split("/")[0]
    with closing(Inspection.open(Path(run))) as inspection:
        theirs = inspection.run_file
        recorded = theirs.config.populations.get(name)
        try:
            scheduled = None if recorded is None else recorded.scheduled
            schedule = schedule_of(
                inspection.tables, policy, scheduled=scheduled, history=inspection.history()
            )
        except ConfigError as error:
            raise ConfigError(f"{said}: {error}") from error
    if theirs.spec.of_matches.digest != spec.of_matches.digest:
        raise ConfigError(
            f"{said}: its environment is {theirs.spec.id} {dict(theirs.spec.kwargs)}, "
            f"this run's {spec.id} {dict(spec.kwargs)}"
        )
    # Populations that the configuration leaves out exist, too, named by the environment.
    populations = assign_agents(config.populations, spec)
    if name not in populations:
        raise ConfigError(
            f"{said}: this run has no population {name}, but {', '.join(populations)}"
        )
    there, here = theirs.config.populations[name], populations[name]
    # Hyperparameters of another algorithm have other names and meanings.
    if there.algorithm != here.algorithm:
        raise ConfigError(f"{said}: it learned by {there.algorithm}, this run by {here.algorithm}")
    settings = changeable_settings(here.algorithm, launch_directory=launch_directory)
    populations[name] = here.model_copy(
        update={
            "size": 1,
            "hyperparameters": {
                key: value
                for key, value in schedule[0].hyperparameters.items()
                # Settings that PBT changed in that run are taken from the schedule alone.
                if key not in settings
            },
            "schedule": schedule,
            # A population of size 1 has no donor, and exploring would leave the schedule.
            "pbt": PbtConfig(exploit="none"),
        }
    )
    return config.model_copy(update={"populations": populations})
