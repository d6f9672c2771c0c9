"""A learner on a host that sees nothing of the run's directory, started again as a recipe does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arena.learners.loop import ACK_LOG
from arena.learners.state import EXIT_DONE, EXIT_REFUSED
from experiments.commands import COMMAND
from experiments.faults.hosts.network import within

FINAL_CODES = (EXIT_DONE, EXIT_REFUSED)
WITNESS = "witness"
"""Directory of a host's logs of what its learners sent and what was acknowledged."""

AGAIN_S = 5.0
"""Seconds after which a loop around ssh starts a learner again."""


@dataclass(slots=True)
class HostLearner:
    """A loop around ssh that starts a learner again unless it is done or refused. A thread.

    Attributes:
        host: Name of the host.
        directory: The host's own directory: run.yaml, a key, a cache and logs.
        hidden: Directories that are empty on this host.
        endpoint: Address of the controller.
        environment: Variables for its processes.
        codes: Exit codes so far.
        is_over: Whether the loop has ended by itself: the learner said that all is done.
    """

    host: str
    directory: Path
    hidden: Sequence[Path]
    endpoint: str
    environment: Mapping[str, str]
    codes: list[int] = field(default_factory=list)
    is_over: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def cache(self) -> Path:
        """Return its cache of checkpoints."""
        return self.directory / "cache"

    @property
    def log(self) -> Path:
        """Return the file that it writes to."""
        return self.directory / "learner.log"

    def start(self, run: Path, *, key: str) -> None:
        """Copy what a learner needs, and begin."""
        shutil.copy(run / "run.yaml", self.directory)
        shutil.copy(run / "keys" / f"{key}.key", self.directory / "learner.key")
        self._thread = threading.Thread(target=self._loop, name=f"loop-{self.host}", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        # The mounts are made in the learner's own mount namespace, which `exec` keeps.
        hide = "; ".join(f"mount -t tmpfs none {shlex.quote(str(path))}" for path in self.hidden)
        learner = [*COMMAND, "learner", "run.yaml", "--connect", self.endpoint]
        learner += ["--keys", "learner.key", "--cache", "cache"]
        script = f"set -e; {hide}; exec {shlex.join(learner)}"
        environment = {**os.environ, **self.environment, ACK_LOG: str(self.directory / WITNESS)}
        while not self._stopping.is_set():
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*within(self.host), "unshare", "--mount", "sh", "-c", script],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    env=environment,
                    # Linux shares CPU time among sessions, and the controller has a session of its
                    # own.
                    start_new_session=True,
                )
            self.codes.append(self._process.wait())
            if self.codes[-1] in FINAL_CODES:
                self.is_over = True
                return
            self._stopping.wait(AGAIN_S)

    def await_end(self, timeout_s: float) -> bool:
        """Wait for a learner that was told to stop; returns whether the loop has ended."""
        assert self._thread is not None, "it was started"
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the loop, and kill its learner."""
        self._stopping.set()
        if self._thread is not None:
            while self._thread.is_alive():
                if self._process is not None:
                    self._process.kill()
                self._thread.join(0.1)
