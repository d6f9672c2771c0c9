"""Checks before anything of a run is made: all faults at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.envs.inspect import Inspected
    from populations.config.run_config import RunConfig
    from populations.config.validation import Draft
    from populations.faults import Faults

_ENVIRONMENT = ("id", "kwargs", "backend", "possible_agents", "curriculum")
"""Keys without which another environment would be looked at."""


def looked_over(draft: Draft[RunConfig], *, launch_directory: str) -> tuple[RunConfig, Inspected]:
    """Check a configuration; return it with what its environment shows.

    Faults of the document, of the device, of the environment and of how they fit are found in one
    go, except those that only follow from another fault.

    Raises:
        ConfigError: Names every fault.
    """
    from arena.errors import ConfigError, ConfigFaults
    from populations.faults import Faults

    from .device import check_machine
    from .sizing import inspect_for

    faults, config = Faults(), draft.model
    # Raised only to be gathered: the draft's faults come first in the list.
    with faults.gathered():
        if draft.faults:
            raise ConfigFaults(draft.faults)
    if config is None:
        faults.raise_any()
        raise ConfigError("the configuration is empty")
    with faults.gathered():
        check_machine(config)
    # Without faults the inspection below finds those of the environment, too, and plays it once.
    if not faults.is_empty:
        _look_at_the_rest(draft, config, faults, launch_directory=launch_directory)
    faults.raise_any()
    return inspect_for(config, launch_directory=launch_directory)


def _look_at_the_rest(
    draft: Draft[RunConfig], config: RunConfig, faults: Faults, *, launch_directory: str
) -> None:
    """Collect faults of the environment, and of the configuration in it, beside known ones."""
    from arena.envs.inspect import inspect_environment, inspect_lessons
    from arena.errors import ConfigError, EnvironmentFault
    from populations.config.resolve import resolve_config

    if any(path[0] == "environment" and path[1] in _ENVIRONMENT for path in draft.removed):
        return
    request = config.inspection(launch_directory=launch_directory)
    with faults.gathered():
        try:
            spec = inspect_lessons(inspect_environment(request), config.lessons, request=request)
        # The command ends here: a user's environment that breaks is one more fault in the list.
        except EnvironmentFault as error:
            raise ConfigError(str(error)) from error
        # What would only follow from a known fault is not told.
        if not _is_doubtful(draft, config):
            # Nothing is played to choose sizes: this run does not begin.
            resolve_config(config, spec, launch_directory=launch_directory)


def _is_doubtful(draft: Draft[RunConfig], config: RunConfig) -> bool:
    """Return whether populations or sides may be other than meant, so that their faults follow.

    That is the case if sides or agents are wrong, or if a key is unknown in a section without
    them: the key may be a misspelt one of these.
    """
    for path in draft.removed:
        if path == ("populations",) or path[:2] == ("environment", "sides"):
            return True
        if len(path) == 2 and path[0] == "environment" and config.environment.sides is None:
            return True
        if path[0] == "populations" and len(path) in (2, 3):
            population = config.populations.get(path[1])
            if population is None or population.agents is None:
                return True
    return False
