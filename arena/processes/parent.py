"""Processes that die with this one: start, watch, end. Torch-free.

Tests: `tests/arena/learners/test_process.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from arena.processes.child import STACKS

REAP_S = 10.0
"""Longest wait for a killed process to end."""


class ChildProcess:
    """A process and all that it may have started: they are one process group.

    All methods may be called again and after the end, and from any thread.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        death_fd: int,
        stacks: Path | None = None,
        helper: str | None = None,
    ) -> None:
        self._process = process
        self._death_fd: int | None = death_fd
        self._stacks = stacks
        self._helper = helper
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Its process id, which is its group's, too."""
        return self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard input and output, where these are pipes."""
        assert self._process.stdin is not None, "it was started without pipes"
        assert self._process.stdout is not None, "it was started without pipes"
        return self._process.stdin, self._process.stdout

    def poll(self) -> int | None:
        """Its exit code (-n: by signal n), or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._bury()
        return code

    def wait(self) -> int:
        """Wait for its end, and return its exit code (-n: by signal n)."""
        code = self._process.wait()
        self._bury()
        return code

    def terminate(self) -> None:
        """Ask it to end with everything saved."""
        if self._process.poll() is None:
            self._process.terminate()

    def dump_stacks(self) -> None:
        """Ask it to append the stacks of its threads to its file; this takes a moment."""
        if self._stacks is not None and self._process.poll() is None:
            with contextlib.suppress(OSError), self._stacks.open("a") as file:
                file.write(f"process {self.pid}:\n")
            self._process.send_signal(signal.SIGUSR1)
            # Where others work for it, those may be stuck; they write to files of their own.
            for pid in self._helpers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)

    def _helpers(self) -> list[int]:
        """Return its children that run the helping module; not those of users' code."""
        try:
            children = psutil.Process(self.pid).children()
            return [child.pid for child in children if self._helper in child.cmdline()]
        # One of them has just ended.
        except psutil.Error:
            return []

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
        with self._lock:
            death_fd, self._death_fd = self._death_fd, None
        if death_fd is not None:
            # What the process started may outlive it, in its group.
            self._kill_group()
            os.close(death_fd)


def spawn(
    arguments: Sequence[str],
    *,
    log_path: Path,
    stacks: Path | None = None,
    helper: str | None = None,
    has_pipes: bool = False,
) -> ChildProcess:
    """Start a process that dies with this thread, and with this process.

    Args:
        arguments: Command; ``--parent-pid`` and ``--death-fd`` are added to it.
        log_path: File that its output is appended to; the directory is made, but not that one's
            parent.
        stacks: File that SIGUSR1 has it append its stacks to; None: it has none.
        helper: Module that processes of its own run for it, which are to write their stacks, too.
        has_pipes: Whether its standard input and output are pipes, and only errors go to the log.

    Raises:
        OSError: If the process cannot be started or its log not be opened.
    """
    # No parents: a run directory that was moved away must not come back with nothing but logs.
    log_path.parent.mkdir(exist_ok=True)
    # Only this process has the write end (pipes are not inherited): it closes when this one ends.
    read_fd, death_fd = os.pipe()
    bound = [*arguments, "--parent-pid", str(os.getpid()), "--death-fd", str(read_fd)]
    try:
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                bound,
                stdin=subprocess.PIPE if has_pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if has_pipes else log,
                stderr=log if has_pipes else subprocess.STDOUT,
                # Ctrl-C in a terminal reaches this process only, which stops its learners in order.
                start_new_session=True,
                close_fds=True,
                pass_fds=(read_fd,),
                # Many processes share the machine, each on one core.
                env=os.environ
                | {"OMP_NUM_THREADS": "1"}
                | ({} if stacks is None else {STACKS: str(stacks)}),
            )
    except OSError:
        os.close(death_fd)
        raise
    finally:
        # The child has its own copy by now, or there is none.
        os.close(read_fd)
    return ChildProcess(process, death_fd=death_fd, stacks=stacks, helper=helper)
