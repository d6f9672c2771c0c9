"""Checks before anything of a run is made or changed: its machine, its environment, its code.

Tests: `tests/tools/launch/test_preflight.py`, `tests/integration/test_resume.py`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError, ConfigFaults, EnvironmentFault
from populations.errors import ResumeRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arena.envs.inspect import Inspected
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile
    from populations.config.validation import Draft
    from populations.faults import Faults
    from populations.records.rows import Json

_ENVIRONMENT = ("id", "kwargs", "backend", "possible_agents", "curriculum")
"""Keys without which another environment would be looked at."""


def looked_over(draft: Draft[RunConfig], *, launch_directory: str) -> Inspected:
    """Check a configuration; return what its environment shows.

    Faults of the document, of the device, of the environment and of how they fit are found in one
    go, except those that only follow from another fault.

    Raises:
        ConfigError: Names every fault.
    """
    from populations.faults import Faults

    from .sizing import inspect_for

    faults, config = Faults(), draft.model
    if config is None:
        raise ConfigFaults(draft.faults)
    with faults.gathered():
        # The draft's faults come first in the list.
        draft.require()
    with faults.gathered():
        check_machine(config)
    # The inspection below also finds the faults of the environment, and plays only if there are
    # none.
    if not faults.is_empty:
        _look_at_the_rest(draft, config, faults, launch_directory=launch_directory)
    faults.raise_any()
    return inspect_for(config, launch_directory=launch_directory)


def _look_at_the_rest(
    draft: Draft[RunConfig], config: RunConfig, faults: Faults, *, launch_directory: str
) -> None:
    """Collect faults of the environment, and of the configuration in it, beside known ones."""
    from arena.envs.inspect import inspect_environment, inspect_lessons
    from populations.config.resolve import resolve_config

    if any(path[0] == "environment" and path[1] in _ENVIRONMENT for path in draft.removed):
        return
    request = config.inspection(launch_directory=launch_directory)
    with faults.gathered():
        try:
            spec = inspect_lessons(inspect_environment(request), config.lessons, request=request)
        # The fault is added to the list, because the command ends here.
        except EnvironmentFault as error:
            raise ConfigError(str(error)) from error
        # Faults that only follow from a known one are not reported.
        if not _is_doubtful(draft, config):
            # Sizes are not chosen by playing, because this run does not begin.
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


_COUNT = "import torch; print(torch.cuda.device_count())"
# Importing torch from a slow disk takes long, and a broken driver may never answer.
_TIMEOUT_S = 120.0


def check_machine(config: RunConfig) -> None:
    """Refuse a device or a launcher that this machine lacks.

    Raises:
        ConfigError: Says what is missing.
    """
    from populations.launchers.ray_session import check_ray

    if config.launcher == "ray":
        # With Ray, devices are those of the cluster's nodes.
        check_ray(config.ray)
    else:
        check_devices(config.devices)


def check_devices(devices: Sequence[str]) -> None:
    """Refuse GPUs that torch cannot use here.

    Args:
        devices: Values of the configuration's key ``device``.

    Raises:
        ConfigError: Names the device and the GPUs that there are.
    """
    asked = [device for device in devices if device.startswith("cuda")]
    if not asked:
        return
    # GPUs are counted once, because counting takes a process that imports torch.
    num_gpus = count_gpus()
    for device in asked:
        if num_gpus == 0:
            raise ConfigError(
                f"device: {device} needs a GPU that torch can use, and torch finds none here (or "
                "does not answer); write device=cpu, or device=auto (a GPU where there is one)"
            )
        # "cuda" without an index is the first GPU.
        index = int(device.partition(":")[2] or 0)
        if index >= num_gpus:
            last = f"cuda:{num_gpus - 1}"
            raise ConfigError(f"device: must be one of cuda:0 to {last} here, got {device}")


def count_gpus() -> int:
    """Count the GPUs that torch can use.

    0 also where torch cannot be imported, or does not answer within `_TIMEOUT_S`.
    """
    try:
        # The count runs in a child process, because the controller never imports torch.
        done = subprocess.run(
            [sys.executable, "-c", _COUNT],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0
    # A driver may print warnings instead of a number.
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


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
    from populations.config.resume import other_code, other_facts, other_versions
    from populations.hooks.make import check_config as check_hooks

    from .sizing import inspect_for

    directory = run_file.launch_directory
    check_machine(config)
    check_hooks(config, launch_directory=directory)
    find_sinks(config.metrics.sinks, run_dir, launch_directory=directory)
    try:
        # The environment is inspected in a child process, as at launch. A resolved configuration
        # has its sizes, so nothing is played.
        inspected = inspect_for(config, launch_directory=directory)
    except (ConfigError, EnvironmentFault) as error:
        raise ConfigError(f"this run cannot go on as it is: {error}") from error
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
