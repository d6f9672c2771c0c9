"""Ray actor of one learner: it starts the learner as a child on its node, and tells how it ended.

The actor runs nobody's code but this, so when it dies, its node or Ray has ended it, and no work is
to blame; when its child dies, the exit code says how. Only text crosses Ray.

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
"""Time from a child's SIGKILL until it is told: Ray kills a worker's children just before the
worker itself, and then it is the actor that was killed."""


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
            name: Name of its log.
            setup: LearnerSetup as JSON.
            endpoint: Endpoint of the controller.
            store: Endpoint of the store, if this node does not see the run's directory.
            cache_mb: Bound of its copies of checkpoints then, in MB.
            populations: Populations that it trains, separated by commas; empty: any.
            key: Text of its key file.
            logs: Directory of its log; empty: that of Ray's logs on this node.

        Raises:
            ConfigError: If there is no place for its files.
            OSError: If these cannot be written, or the process not be started.
        """
        session = _session()
        parent = session / f"arena-{os.getuid()}"
        # Ray's session is open to everybody.
        make_private(parent)
        # Held as long as this process lives: where it is killed, the next one here clears up.
        taken, self._held = take_directory(parent)
        self._directory = taken / "learner"
        self._clear()
        self._directory.mkdir(mode=0o700)
        key_path, setup_path = self._directory / "learner.key", self._directory / "learner.json"
        write_secret(key_path, key)
        setup_path.write_text(_here(LearnerSetup.model_validate_json(setup)).model_dump_json())
        self._log = Path(logs or session / "logs") / f"{name}.log"
        # The constructor's thread lasts as long as the actor: the child dies with both.
        self._process = spawn_learner(
            setup_path,
            endpoint,
            populations=tuple(population for population in populations.split(",") if population),
            log_path=self._log,
            keys=key_path,
            remote=Remote(endpoint=store, cache=self._directory / "cache", cache_mb=int(cache_mb)),
        )

    def place(self) -> str:
        """Return where it runs, as JSON: id of Ray's node, host, process id, path of its log."""
        node = import_module("ray").get_runtime_context().get_node_id()
        where = {"node": node, "host": socket.gethostname(), "pid": self._process.pid}
        return json.dumps({**where, "log": str(self._log)})

    def wait(self) -> int:
        """Wait for the learner's end, and return its exit code (-n: by signal n)."""
        code = self._process.wait()
        if code == -signal.SIGKILL:
            time.sleep(SETTLE_S)
        self._clear()
        return code

    def kill(self, dump_stacks: bool) -> None:
        """End the learner and what it has started, and return when they are gone.

        Args:
            dump_stacks: Whether it first writes its stacks to their file beside its log.
        """
        if dump_stacks:
            self._process.dump_stacks()
            time.sleep(STACKS_S)
        self._process.kill_group()
        # The directory is cleared here, too: the actor is ended as soon as this returns.
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _here(setup: LearnerSetup) -> LearnerSetup:
    """Return a setup with the directory of the user's code as this node has it."""
    if setup.launch_directory == NO_CODE or os.path.isdir(setup.launch_directory):
        return setup
    # `ray job submit --working-dir` unpacks the code on each node, and actors start in it.
    return setup.model_copy(update={"launch_directory": os.getcwd()})


def _session() -> Path:
    """Return the directory of Ray's session on this node."""
    # Ray is imported by name, as it is an extra.
    context = import_module("ray").get_runtime_context()
    return Path(context.get_temp_dir(), context.get_session_name())
