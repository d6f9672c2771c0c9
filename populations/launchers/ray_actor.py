"""Ray actor of one learner: it starts the learner as a child process, and reports its exit code.

The actor runs only this module's code. If it dies, its node or Ray has ended it, and no assignment
is to blame; if its child dies, the exit code shows the cause. Ray transports only text.

Tests: `tests/contracts/test_launchers.py`, `tests/integration/test_ray.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from importlib import import_module
from pathlib import Path

from arena.config import LearnerSetup
from arena.learners.spawn import spawn_learner
from arena.resolve import NO_CODE
from arena.transfer.cache import take_directory
from arena.transfer.remote_store import Remote
from arena.wire.address import make_private
from arena.wire.keys import write_secret
from populations.launchers.local import STACKS_S

SETTLE_S = 1.0
"""Delay before a child's SIGKILL is reported. Ray kills a worker's children just before the worker
itself; in that case the actor dies within the delay, and its own death counts."""


class LearnerActor:
    """Actor of a learner. Ray calls the constructor in the main thread of the actor's process."""

    def __init__(
        self,
        *,
        name: str,
        setup: str,
        endpoint: str,
        store: str,
        cache_mb: str,
        populations: str,
        key: str,
        logs: str,
    ) -> None:
        """Start the learner.

        Args:
            name: Name of the learner's log.
            setup: LearnerSetup as JSON.
            endpoint: Endpoint of the controller.
            store: Endpoint of the store, used if this node has no access to the run's directory.
            cache_mb: Maximum size of local copies of checkpoints in that case, in MB.
            populations: Populations that the learner trains, separated by commas; empty: any.
            key: Text of the learner's key file.
            logs: Directory of the log; empty: that of Ray's logs on this node.

        Raises:
            ConfigError: If no directory for its files can be made.
            OSError: If its files cannot be written, or the process cannot be started.
        """
        session = _session()
        parent = session / f"arena-{os.getuid()}"
        # All users can read Ray's session directory, so keys need a private one.
        make_private(parent)
        # The lock lasts as long as this process; after a kill, the next actor here cleans up.
        taken, self._held = take_directory(parent)
        self._directory = taken / "learner"
        self._clear()
        self._directory.mkdir(mode=0o700)
        key_path, setup_path = self._directory / "learner.key", self._directory / "learner.json"
        write_secret(key_path, key)
        setup_path.write_text(_here(LearnerSetup.model_validate_json(setup)).model_dump_json())
        self._log = Path(logs or session / "logs") / f"{name}.log"
        # The child dies with the thread that starts it; this thread lasts as long as the actor.
        self._process = spawn_learner(
            setup_path,
            endpoint,
            populations=tuple(population for population in populations.split(",") if population),
            log_path=self._log,
            keys=key_path,
            remote=Remote(endpoint=store, cache=self._directory / "cache", cache_mb=int(cache_mb)),
        )

    def place(self) -> str:
        """Return the learner's location as JSON: Ray's node id, host, process id, path of log."""
        node = import_module("ray").get_runtime_context().get_node_id()
        where = {"node": node, "host": socket.gethostname(), "pid": self._process.pid}
        return json.dumps({**where, "log": str(self._log)})

    def wait(self) -> int:
        """Wait for the learner's end, and return its exit code (-n: signal n)."""
        code = self._process.wait()
        if code == -signal.SIGKILL:
            time.sleep(SETTLE_S)
        self._clear()
        return code

    def kill(self, dump_stacks: bool) -> None:
        """Kill the learner and its descendants, and return when they have ended.

        Args:
            dump_stacks: Whether the learner first writes its stacks to a file beside its log.
        """
        if dump_stacks:
            self._process.dump_stacks()
            time.sleep(STACKS_S)
        self._process.kill_group()
        # `wait` may not get to clear the directory: the actor is killed as soon as this returns.
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _here(setup: LearnerSetup) -> LearnerSetup:
    """Return a setup whose launch directory is the directory of the user's code on this node."""
    if setup.launch_directory == NO_CODE or os.path.isdir(setup.launch_directory):
        return setup
    # `ray job submit --working-dir` unpacks the code on each node, and actors start in it.
    return setup.model_copy(update={"launch_directory": os.getcwd()})


def _session() -> Path:
    """Return the directory of Ray's session on this node."""
    # Ray is an optional dependency, so it is imported late and by name.
    context = import_module("ray").get_runtime_context()
    return Path(context.get_temp_dir(), context.get_session_name())
