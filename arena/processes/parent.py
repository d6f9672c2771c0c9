"""Processes that end with this one, and all that they start: start, watch, end. Torch-free.

Tests: `tests/arena/processes/test_parent.py`, `tests/arena/learners/test_process.py`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

import psutil

from arena.processes import guard
from arena.processes.bounded_log import BoundedLog, open_shortened

STACKS = "ARENA_STACKS"
"""Environment variable with the file of a process's stacks, for those that it starts itself."""

REAP_S = 10.0
"""Longest wait for a killed process to end."""

START_S = 10.0
"""Longest wait for a guard to have begun."""


class ChildProcess:
    """A process below guards: when it has ended, so has all that it started.

    Where its outer guard itself is killed, the inner one ends the rest a moment later.

    All methods may be called again and after the end, and from any thread.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        death_fd: int,
        pid_fd: int,
        stacks: Path | None = None,
        helpers: Collection[str] = (),
    ) -> None:
        self._process = process
        self._death_fd: int | None = death_fd
        self._pid_fd: int | None = pid_fd
        self._pid = 0
        self._stacks = stacks
        self._helper_modules = frozenset(helpers)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End it at once, and close its pipes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                # What could not be written is for nobody.
                with contextlib.suppress(OSError):
                    pipe.close()

    @property
    def pid(self) -> int:
        """Its process id, for which this waits some milliseconds after the start; 0: it has none,
        as its guard has failed, or has not begun within `START_S`.
        """
        return self._pid_within(START_S)

    @property
    def known_pid(self) -> int:
        """Its process id, without any wait; 0: its guard has not begun yet, or has failed."""
        return self._pid_within(0.0)

    def _pid_within(self, wait_s: float) -> int:
        with self._lock:
            if self._pid_fd is not None:
                # Not `select`, which takes no descriptor above 1,023.
                told = select.poll()
                told.register(self._pid_fd, select.POLLIN)
                # Left open otherwise: a guard that begins late still has a process.
                if told.poll(wait_s * 1000):
                    self._pid = int(os.read(self._pid_fd, 32) or 0)
                    os.close(self._pid_fd)
                    self._pid_fd = None
            return self._pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard input and output, where these are pipes."""
        assert self._process.stdin is not None, "it was started without pipes"
        assert self._process.stdout is not None, "it was started without pipes"
        return self._process.stdin, self._process.stdout

    def communicate(
        self, data: bytes | None = None, *, timeout_s: float | None = None
    ) -> tuple[bytes, bytes]:
        """Write to its standard input, and return its output and errors when it has ended.

        Raises:
            subprocess.TimeoutExpired: If it has not ended by then; another call returns the output.
        """
        output, errors = self._process.communicate(data, timeout=timeout_s)
        self._bury()
        return output or b"", errors or b""

    def poll(self) -> int | None:
        """Its exit code (-n: by signal n), or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._bury()
        return code

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end, and return its exit code (-n: by signal n).

        Raises:
            subprocess.TimeoutExpired: If it has not ended by then.
        """
        code = self._process.wait(timeout_s)
        self._bury()
        return code

    def terminate(self) -> None:
        """Ask it to end with everything saved."""
        # A guard that has not begun takes it for its own: then there is nothing to save.
        self._process.send_signal(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Ask it to append the stacks of its threads to its file; this takes a moment."""
        # Its guard passes the signal on; one that has not begun would end by it.
        if self._stacks is not None and self.known_pid and self._process.poll() is None:
            with contextlib.suppress(OSError), open_shortened(self._stacks) as file:
                file.write(b"process %d:\n" % self.known_pid)
            self._process.send_signal(signal.SIGUSR1)
            # Where others work for it, those may be stuck; they write to files of their own.
            for pid in self._helpers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)

    def _helpers(self) -> list[int]:
        """Return the processes below it that run a helping module; not those of users' code."""
        try:
            below = psutil.Process(self.known_pid).children(recursive=True)
            modules = self._helper_modules
            return [one.pid for one in below if not modules.isdisjoint(one.cmdline())]
        # One of them has just ended.
        except psutil.Error:
            return []

    def kill(self) -> None:
        """End it and all that it has started at once, and wait until these are gone.

        Raises:
            subprocess.TimeoutExpired: If it is still there after `REAP_S`.
        """
        self._bury()
        try:
            # Not for ever: a process that waits for a disk cannot be killed.
            self._process.wait(timeout=REAP_S)
        except subprocess.TimeoutExpired:
            # It was stopped, perhaps; the other guard sees to the rest.
            self._process.kill()
            self._process.wait(timeout=REAP_S)

    def _bury(self) -> None:
        """Close the pipe, whose end ends all that is left."""
        with self._lock:
            fds = self._death_fd, self._pid_fd
            self._death_fd = self._pid_fd = None
        for fd in fds:
            if fd is not None:
                os.close(fd)


def spawn(
    arguments: Sequence[str],
    *,
    log_path: Path | None = None,
    stacks: Path | None = None,
    helpers: Collection[str] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    directory: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> ChildProcess:
    """Start a process that dies with this one, as does all that it starts.

    Args:
        arguments: Command; the first one is the path of an interpreter of Python.
        log_path: Bounded file that its output is appended to, its errors alone where ``stdout`` is
            given; the directory is made, but not that one's parent. None: as ``stdout`` and
            ``stderr`` say.
        stacks: File that SIGUSR1 has it append its stacks to; None: it has none.
        helpers: Modules that processes of its own run for it, which are to write their stacks, too.
        stdin: Standard input, as `subprocess.Popen` takes it.
        stdout: Standard output.
        stderr: Standard error, where there is no log.
        pass_fds: Descriptors that it gets.
        directory: Working directory; None: this process's.
        variables: Environment variables beside this process's.

    Raises:
        OSError: If the process cannot be started or its log not be opened.
    """
    if log_path is not None:
        # No parents: a run directory that was moved away must not come back with nothing but logs.
        log_path.parent.mkdir(exist_ok=True)
        # The guard opens it, too; this process can say why it cannot be.
        BoundedLog(log_path).close()
    # Many processes share the machine, each on one core.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    if stacks is not None:
        open_shortened(stacks).close()
        environment[STACKS] = str(stacks)
    # Only this process has the ends that it keeps: they close when it ends.
    with _pipe() as (parent_fd, death_fd), _pipe() as (pid_fd, told_fd):
        process = subprocess.Popen(
            _guarded(arguments, parent_fd, told_fd, log_path=log_path, takes_output=not stdout),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            # Ctrl-C in a terminal reaches this process only, which stops its learners in order.
            start_new_session=True,
            close_fds=True,
            pass_fds=(parent_fd, told_fd, *pass_fds),
            cwd=directory,
            env=environment,
        )
        return ChildProcess(
            process,
            death_fd=os.dup(death_fd),
            pid_fd=os.dup(pid_fd),
            stacks=stacks,
            helpers=helpers,
        )


def _guarded(
    arguments: Sequence[str],
    parent_fd: int,
    told_fd: int,
    *,
    log_path: Path | None,
    takes_output: bool,
) -> list[str]:
    """Return the command of a guard; see its `main`."""
    # Without the user's packages: it starts in a fifth of the time.
    command = [arguments[0], "-I", "-S", guard.__file__]
    command += [f"guards-{log_path.stem if log_path else arguments[-1]}"]
    command += [str(parent_fd), str(told_fd), str(log_path.absolute()) if log_path else ""]
    return [*command, "1" if takes_output else "", guard.SEPARATOR.join(arguments)]


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Have a pipe for as long as the block lasts; processes do not inherit it."""
    fds = os.pipe()
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)
