"""A look at the world in which a run goes on, before anything of the run is written.

Tests: `tests/integration/test_resume.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arena.envs.inspect import Inspected
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile
    from populations.records.rows import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """World that a run goes on in.

    Attributes:
        code: Digests of users' code as it is now.
        warnings: Sentences about what is otherwise than it was.
        other_versions: Packages in other versions than when the run was made: then and now.
        other_code: Modules of other source: digests then and now.
    """

    code: Mapping[str, str]
    warnings: tuple[str, ...]
    other_versions: Mapping[str, Json]
    other_code: Mapping[str, Json]


def look_at_world(run_file: RunFile, config: RunConfig, *, run_dir: Path) -> World:
    """Refuse to go on where the run cannot; return what is otherwise than it was.

    Args:
        run_file: The run's file.
        config: Configuration with which it goes on.
        run_dir: Run directory.

    Raises:
        ConfigError: If a device, a hook or a sink is missing here, code cannot be imported, or the
            environment cannot be made.
        ResumeRefused: If the environment has other agents, spaces or masks than the run's.
    """
    from arena.learners.versions import pip_command, told
    from arena.metrics.sink import find_sinks
    from populations.config.resume.differences import other_code, other_facts, other_versions
    from populations.errors import ResumeRefused
    from populations.hooks.make import check_config as check_hooks

    from .device import check_machine

    directory = run_file.launch_directory
    check_machine(config)
    check_hooks(config, launch_directory=directory)
    find_sinks(config.metrics.sinks, run_dir, launch_directory=directory)
    inspected = _inspected(config, launch_directory=directory)
    if facts := other_facts(run_file.spec, inspected.spec):
        raise ResumeRefused(
            f"the environment {run_file.spec.id} is not the one that this run was made with: "
            f"{'; '.join(facts)}. Results and weights are about that one, so nothing was changed: "
            "undo the change and resume, or start a new run"
        )
    versions = other_versions(run_file.versions)
    warnings = []
    if versions:
        warnings.append(
            f"warning: run.yaml records {told(versions, place='here')}; with other packages the "
            f"same seed may give other results (the recorded ones: {pip_command(versions)})"
        )
    code = other_code(run_file.code, inspected.code)
    if code:
        warnings.append(
            f"warning: the code of {', '.join(code)} is other than when the run was made; what was "
            "learned and rated until now may not hold for it"
        )
    return World(
        code=inspected.code,
        warnings=tuple(warnings),
        other_versions={name: list(pair) for name, pair in versions.items()},
        other_code={name: [then[:8], now[:8]] for name, (then, now) in code.items()},
    )


def _inspected(config: RunConfig, *, launch_directory: str) -> Inspected:
    """Make the environment as a launch does, in a child, with all other code that is named.

    Raises:
        ConfigError: If it cannot be made, or the code not be imported.
    """
    from arena.errors import ConfigError, EnvironmentFault

    from .sizing import inspect_for

    try:
        # A resolved configuration has its sizes, so nothing is played for them.
        _, found = inspect_for(config, launch_directory=launch_directory)
    except (ConfigError, EnvironmentFault) as error:
        raise ConfigError(f"this run cannot go on as it is: {error}") from error
    return found
