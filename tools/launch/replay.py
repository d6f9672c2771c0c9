"""``arena launch --schedule-of``: one policy, with the hyperparameters of another one's life.

Tests: `tests/integration/test_evolution.py`.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.environment_spec import EnvironmentSpec
    from populations.config.run_config import RunConfig

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
    from arena.errors import ConfigError
    from populations.config.resolve import resolve_config
    from populations.league.lineage import schedule_of
    from populations.pbt.settings import PbtConfig
    from populations.views.questions.inspection import Inspection

    # The last colon: a path may have some, a policy's id has none.
    run, _, policy = player.rpartition(":")
    if not _POLICY.fullmatch(policy) or not (Path(run) / "run.yaml").is_file():
        raise ConfigError(
            f"--schedule-of must be RUN:POLICY, as in runs/a:player/p003, got {player!r}"
        )
    said = f"--schedule-of {player}"
    with closing(Inspection.open(Path(run))) as inspection:
        theirs = inspection.run_file
        recorded = theirs.config.populations.get(policy.split("/")[0])
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
    name = policy.split("/")[0]
    # Resolved, so that populations that the configuration leaves out are there by name.
    populations = dict(resolve_config(config, spec, launch_directory=launch_directory).populations)
    if name not in populations:
        raise ConfigError(
            f"{said}: this run has no population {name}, but {', '.join(populations)}"
        )
    algorithms = theirs.config.populations[name].algorithm, populations[name].algorithm
    # Hyperparameters of another algorithm have other names and meanings.
    if algorithms[0] != algorithms[1]:
        raise ConfigError(f"{said}: it learned by {algorithms[0]}, this run by {algorithms[1]}")
    there = theirs.config.populations[name]
    # Numbers of the schedule stand for the choices of that run.
    genes = {gene: there.search_space[gene] for gene in there.changeable_settings}
    populations[name] = populations[name].model_copy(
        update={
            "size": 1,
            "hyperparameters": {
                key: value for key, value in schedule[0].hyperparameters.items() if key not in genes
            },
            "schedule": schedule,
            "search_space": {**populations[name].search_space, **genes},
            # With size 1 there is no donor, and exploring would leave the schedule.
            "pbt": PbtConfig(exploit="none"),
        }
    )
    return config.model_copy(update={"populations": populations})
