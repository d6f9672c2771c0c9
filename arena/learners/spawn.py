"""Learner processes seen from outside: start, watch, end. Torch-free.

Tests: `tests/arena/learners/test_process.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

MODULE = "arena.learners.process"
REAP_S = 10.0
"""Longest wait for a killed process to end."""


class LearnerProcess:
    """A learner process and all that it may have started: they are one process group.

    Owned by one thread. All methods may be called again and after the end.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, death_fd: int, stacks: Path) -> None:
        self._process = process
        self._death_fd: int | None = death_fd
        self._stacks = stacks

    @property
    def pid(self) -> int:
        """Its process id, which is its group's, too."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code (-n: by signal n), or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._bury()
        return code

    def terminate(self) -> None:
        """Ask it to end with everything saved."""
        if self._process.poll() is None:
            self._process.terminate()

    def dump_stacks(self) -> None:
        """Ask it to append the stacks of its threads to its file; this takes a moment."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError), self._stacks.open("a") as file:
                file.write(f"process {self.pid}:\n")
            self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End the whole group at once, and wait until the process is gone.

        Raises:
            subprocess.TimeoutExpired: If it is still there after `REAP_S`.
        """
        if self._process.poll() is None:
            self._kill_group()
            # Not for ever: a process that waits for a disk cannot be killed.
            self._process.wait(timeout=REAP_S)
        self._bury()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # none of it is left
            os.killpg(self.pid, signal.SIGKILL)

    def _bury(self) -> None:
        """End what the ended process has started, and close the pipe."""
        if self._death_fd is not None:
            # What the process started may outlive it, in its group.
            self._kill_group()
            os.close(self._death_fd)
            self._death_fd = None


def spawn_learner(
    setup_path: Path,
    endpoint: str,
    *,
    populations: tuple[str, ...],
    log_path: Path,
    device: str | None = None,
    keys: Path | None = None,
    python: str = sys.executable,
    command: Sequence[str] = ("-m", MODULE),
) -> LearnerProcess:
    """Start a learner that dies with this process. Call it from the main thread.

    Args:
        setup_path: A LearnerSetup as JSON.
        endpoint: Endpoint of its controller.
        populations: Populations that it trains; empty: any.
        log_path: File that its output is appended to; the directory is made, but not that one's
            parent.
        device: Device in place of the setup's; None: the setup's.
        keys: Key file, which only its owner can read.
        python: Path of the interpreter.
        command: Arguments of the interpreter that start a learner.

    Raises:
        RuntimeError: From another thread than the main one.
        OSError: If the process cannot be started or its log not be opened.
    """
    # PR_SET_PDEATHSIG: the kernel takes the end of the spawning thread for the end of the parent.
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("learners must be started from the main thread")
    # No parents: a run directory that was moved away must not come back with nothing but logs.
    log_path.parent.mkdir(exist_ok=True)
    # Only this process has the write end (pipes are not inherited): it closes when this one ends.
    read_fd, death_fd = os.pipe()
    arguments = [python, *command, "--setup", str(setup_path), "--connect", endpoint]
    if populations:
        arguments += ["--populations", ",".join(populations)]
    if device is not None:
        arguments += ["--device", device]
    if keys is not None:
        # The path only: everybody can read the arguments of a process.
        arguments += ["--keys", str(keys)]
    stacks = stacks_path(log_path)
    arguments += ["--stacks", str(stacks)]
    arguments += ["--parent-pid", str(os.getpid()), "--death-fd", str(read_fd)]
    try:
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal reaches this process only, which stops its learners in order.
                start_new_session=True,
                close_fds=True,
                pass_fds=(read_fd,),
                # Many learners share the machine, each on one core.
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
    except OSError:
        os.close(death_fd)
        raise
    finally:
        # The child has its own copy by now, or there is none.
        os.close(read_fd)
    return LearnerProcess(process, death_fd=death_fd, stacks=stacks)


def stacks_path(log_path: Path) -> Path:
    """Return the file of a learner's stacks: ``stacks-learner-0.txt`` beside ``learner-0.log``."""
    return log_path.with_name(f"stacks-{log_path.stem}.txt")
