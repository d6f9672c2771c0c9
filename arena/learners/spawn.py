"""Start of learner processes. Torch-free.

Tests: `tests/arena/learners/test_process.py`.
"""

from __future__ import annotations

from pathlib import Path

from arena.processes.parent import Child
from arena.transfer.remote_store import Remote

MODULE = "arena.learners.process"
HELPERS = ("arena.envs.workers.process", "arena.learners.rank")
"""Modules of the processes that a learner starts."""


def spawn_learner(
    setup_path: Path,
    endpoint: str,
    *,
    populations: tuple[str, ...],
    log_path: Path,
    device: str | None = None,
    nice: int = 0,
    keys: Path | None = None,
    remote: Remote | None = None,
    module: str = MODULE,
) -> Child:
    """Start a learner process; it and its helpers die with this process.

    Args:
        setup_path: A LearnerSetup as JSON.
        endpoint: Endpoint of its controller.
        populations: Populations that it trains; empty: any.
        log_path: File that its output is appended to; its directory is made, but not the parent of
            that.
        device: Device in place of the setup's; None: the setup's.
        nice: Niceness to add, 0 to 19.
        keys: Key file, which only its owner can read.
        remote: Connection to the run's store; None: the learner reads the run's directory.
        module: Module to run as the learner.

    Raises:
        OSError: If the process cannot be started or its log not be opened.
    """
    arguments = ["--setup", str(setup_path), "--connect", endpoint]
    if populations:
        arguments += ["--populations", ",".join(populations)]
    if device is not None:
        arguments += ["--device", device]
    if nice:
        arguments += ["--nice", str(nice)]
    if keys is not None:
        # Every user of the machine can read a process's arguments, so only the path is passed.
        arguments += ["--keys", str(keys)]
    if remote is not None:
        arguments += ["--store", remote.endpoint, "--cache", str(remote.cache)]
        arguments += ["--cache-mb", str(remote.cache_mb)]
    stacks = stacks_path(log_path)
    arguments += ["--stacks", str(stacks)]
    return Child(module, arguments, log=log_path, stacks=stacks, helpers=HELPERS)


def stacks_path(log_path: Path) -> Path:
    """Return the file of a learner's stacks: ``stacks-learner-0.txt`` beside ``learner-0.log``."""
    return log_path.with_name(f"stacks-{log_path.stem}.txt")
