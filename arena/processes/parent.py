"""Processes of this one's own: started, spoken to, watched, ended. Torch-free.

Tests: `tests/arena/processes/test_parent.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Self

import psutil

from arena.processes import guard
from arena.processes.bounded_log import BoundedLog, open_shortened

STACKS = "ARENA_STACKS"
"""Environment variable with the file of a process's stacks, for those that it starts itself."""

REAP_S = 10.0
"""Longest wait for a killed process to end."""

START_S = 10.0
"""Longest wait for a guard to have begun."""

LINE_BYTES = 64 << 20
"""Most bytes of a line, unless a child is trusted with more: a longer one comes as several."""

NUM_LAST_LINES = 20
"""Lines of a process's log that are shown if it dies."""

CHUNK = 1 << 16
CLOSED = -1


class Child:
    """A process that runs a module of Python: when it has ended, so has all that it started.

    It stands below guards, and ends with this process. Where its outer guard itself is killed, the
    inner one ends the rest a moment later. One that goes on without this process stands alone.

    All methods may be called again and after the end, and from any thread; `tell`, `call` and
    `events` from one at a time.

    Args:
        module: Module that is run.
        arguments: Its arguments.
        log: Bounded file that its output is appended to, its errors alone where it talks; the
            directory is made, but not that one's parent. ``temporary``: a file of its own, which
            goes with this object. None: it has the output and errors of this process.
        dies_with_parent: Whether it ends with this process, and computes on one core. If not, its
            log has no bound, and no environment variable is set.
        talks: Whether it takes lines on standard input and answers on standard output, or says
            lines on standard error alone.
        stacks: File that SIGUSR1 has it append its stacks to; None: it has none.
        helpers: Modules that processes of its own run for it, which are to write their stacks, too.
        pass_fds: Descriptors that it gets.
        directory: Working directory; None: this process's.
        variables: Environment variables beside this process's.
        line_bytes: Most bytes of a line.

    Raises:
        OSError: If the process cannot be started or its log not be opened.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        log: Path | Literal["temporary"] | None = None,
        dies_with_parent: bool = True,
        talks: Literal["output", "errors"] | None = None,
        stacks: Path | None = None,
        helpers: Collection[str] = (),
        pass_fds: Sequence[int] = (),
        directory: str | None = None,
        variables: Mapping[str, str] | None = None,
        line_bytes: int = LINE_BYTES,
    ) -> None:
        self.module, self._line_bytes = module, line_bytes
        self._lock, self._pid = threading.Lock(), 0
        self._stacks, self._helper_modules = stacks, frozenset(helpers)
        self._is_guarded = dies_with_parent
        self._unsent, self._heard, self._is_silent = b"", bytearray(), False
        self._log = log = self._begin_log(log)
        environment = {**os.environ, **(variables or {})}
        if stacks is not None:
            open_shortened(stacks).close()
            environment[STACKS] = str(stacks)
        # With -P no file in the working directory can replace a module.
        command = [sys.executable, "-P", "-m", module, *arguments]
        output = {"output": subprocess.PIPE, "errors": subprocess.DEVNULL}.get(talks or "")
        errors = subprocess.PIPE if talks == "errors" else None
        # Only this process holds these ends of the pipes, so they close when it ends.
        (parent_fd, self._death_fd), (self._pid_fd, told_fd) = os.pipe(), os.pipe()
        if dies_with_parent:
            # Many processes share the machine, so each uses one core.
            environment["OMP_NUM_THREADS"] = "1"
            pass_fds = (parent_fd, told_fd, *pass_fds)
            command = _guarded(command, pass_fds, log=log, takes_output=not talks)
            log = None
        try:
            with contextlib.nullcontext() if log is None else log.open("ab") as file:
                self._process = subprocess.Popen(
                    command,
                    bufsize=0,
                    stdin=subprocess.PIPE if talks == "output" else subprocess.DEVNULL,
                    stdout=output or file,
                    stderr=errors or file,
                    # Ctrl-C in a terminal must reach only this process, which ends the others in
                    # order.
                    start_new_session=True,
                    pass_fds=pass_fds,
                    cwd=directory,
                    env=environment,
                )
            if not dies_with_parent:
                os.write(told_fd, b"%d" % self._process.pid)
        except BaseException:
            self._bury()
            raise
        finally:
            os.close(parent_fd)
            os.close(told_fd)
        self._input = self._process.stdin
        self._output = self._process.stdout or self._process.stderr
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    def _begin_log(self, log: Path | Literal["temporary"] | None) -> Path | None:
        self._place = None
        if log == "temporary":
            self._place = tempfile.TemporaryDirectory(prefix="arena-errors-")
            log = Path(self._place.name) / f"{self.module}.log"
        if log is not None:
            # Parents are not made, because a run directory that was moved away must not reappear
            # with only logs.
            log.parent.mkdir(exist_ok=True)
            # The guard opens the log, too, but only this process can report an error.
            BoundedLog(log).close()
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End it at once, and close its pipes."""
        self.kill_group()
        for pipe in self._pipes():
            pipe.close()
        if self._place is not None:
            self._place.cleanup()

    def _pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self._input, self._output) if pipe is not None]

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
            if self._pid_fd != CLOSED:
                # `select` accepts no descriptor above 1,023.
                told = select.poll()
                told.register(self._pid_fd, select.POLLIN)
                # Otherwise the descriptor stays open, because a guard may begin late.
                if told.poll(wait_s * 1000):
                    self._pid = int(os.read(self._pid_fd, 32) or 0)
                    os.close(self._pid_fd)
                    self._pid_fd = CLOSED
            return self._pid

    def call(self, message: bytes, timeout_s: float = math.inf) -> bytes:
        """Send a line, and return the next line that it says.

        Raises:
            EOFError: If it has ended.
            TimeoutError: If it says nothing in time. What it says later is no answer to another
                call: end it.
        """
        self.tell(message)
        for line in self.events(timeout_s):
            return line
        if self._is_silent:
            raise EOFError(f"{self.module} has ended")
        raise TimeoutError(f"{self.module} has not answered for {timeout_s:g} s")

    def tell(self, message: bytes) -> None:
        """Send a line; what it does not take now is sent while `call` and `events` listen."""
        self._unsent += message + b"\n"
        self._exchange(0.0)

    def end_input(self) -> None:
        """Close its standard input."""
        assert self._input is not None, "it takes no lines"
        self._input.close()
        self._input = None

    def events(self, timeout_s: float = 0.0) -> Iterator[bytes]:
        """Yield the lines that it says, until its output ends or the time is over.

        Without a time limit these are the lines that are there. A line that nothing ends is yielded
        at the end of its output.
        """
        until_s = time.monotonic() + timeout_s
        begin, is_over = 0, False
        while True:
            end = self._heard.find(b"\n", begin) + 1
            begin = len(self._heard)
            if not end and (self._is_silent or begin >= self._line_bytes):
                end = begin
            if end:
                line, begin = bytes(self._heard[:end]), 0
                del self._heard[:end]
                yield line.removesuffix(b"\n")
            elif self._is_silent or is_over:
                return
            else:
                left_s = until_s - time.monotonic()
                # The deadline counts even if output arrives, because a child may write without
                # end.
                is_over = left_s <= 0.0
                self._exchange(max(left_s, 0.0))

    def _exchange(self, wait_s: float) -> None:
        """Take what it says and send what it takes, as soon as there is something."""
        assert self._output is not None, "it says nothing"
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        if self._unsent and self._input is not None:
            poll.register(self._input, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if wait_s == math.inf else wait_s * 1000)}
        if self._output.fileno() in ready:
            data = self._output.read(CHUNK)
            self._heard += data
            self._is_silent = not data
        if self._input is not None and self._input.fileno() in ready:
            try:
                self._unsent = self._unsent[self._input.write(self._unsent) :]
            # The process has ended, which shows at the end of its output.
            except BrokenPipeError:
                self._unsent = b""

    def ask(self, question: bytes, timeout_s: float) -> tuple[list[bytes], int | None]:
        """Send the only line; return all that it says until its end, and its exit code.

        The code is -n by signal n, and None where it took too long and was ended; what it has said
        stands.
        """
        self.tell(question)
        lines, code = list(self.events(timeout_s)), None
        if self._is_silent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.wait(REAP_S)
        self.kill_group()
        return lines, code

    @property
    def ending(self) -> str:
        """Exit code or signal, and the last lines of its log, after its end."""
        lines = "\n".join(self.last_lines()) or "it said nothing"
        return f"({code_or_signal(self._process.wait())}): {lines}"

    @property
    def last_line(self) -> str:
        """Last line of what a command of Arena said, without its name; else how it ended."""
        lines = self.last_lines()
        return lines[-1].removeprefix("arena: ") if lines else self.ending

    def last_lines(self) -> list[str]:
        """Return the last lines of its log."""
        assert self._log is not None, "it has no log"
        # An environment may print any bytes.
        text = self._log.read_bytes().decode("utf8", errors="replace")
        return text.strip().splitlines()[-NUM_LAST_LINES:]

    def poll(self) -> int | None:
        """Its exit code (-n: by signal n), or None while it runs."""
        if (code := self._process.poll()) is not None:
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
        # A guard that has not begun handles the signal itself; then there is nothing to save.
        self._process.send_signal(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Ask it to append the stacks of its threads to its file; this takes a moment."""
        # The guard passes the signal on; a guard that has not begun would be ended by it.
        if self._stacks is None or not self.known_pid or self.poll() is not None:
            return
        with contextlib.suppress(OSError), open_shortened(self._stacks) as file:
            file.write(b"process %d:\n" % self.known_pid)
        self._process.send_signal(signal.SIGUSR1)
        # Helpers may be the ones that hang; they write to files of their own. Other processes
        # below are users'. A process that has just ended raises an error, which is ignored.
        with contextlib.suppress(psutil.Error):
            for one in psutil.Process(self.known_pid).children(recursive=True):
                if not self._helper_modules.isdisjoint(one.cmdline()):
                    one.send_signal(signal.SIGUSR1)

    def kill_group(self) -> None:
        """End it and all that it has started at once, and wait until these are gone.

        Of one without guards these are the processes of its group.

        Raises:
            subprocess.TimeoutExpired: If it is still there after `REAP_S`.
        """
        self._bury()
        try:
            # The wait is limited, because a process that waits for a disk cannot be killed.
            self._process.wait(timeout=REAP_S if self._is_guarded else 0.0)
        except subprocess.TimeoutExpired:
            # The guard may have been stopped; the other guard ends the rest.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=REAP_S)

    def _bury(self) -> None:
        """Close the pipe, which makes the guards end all remaining processes."""
        with self._lock:
            fds = self._death_fd, self._pid_fd
            self._death_fd = self._pid_fd = CLOSED
        for fd in fds:
            if fd != CLOSED:
                os.close(fd)


def code_or_signal(code: int) -> str:
    """Return an exit code (-n: by signal n) in words: ``exit code 3`` or ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _guarded(
    command: Sequence[str], fds: Sequence[int], *, log: Path | None, takes_output: bool
) -> list[str]:
    """Return the command of a guard; see its `main`."""
    # The user's packages are left out, so that the guard starts in a fifth of the time.
    guarded = [command[0], "-I", "-S", guard.__file__]
    guarded += [f"guards-{log.stem if log else command[-1]}"]
    guarded += [str(fds[0]), str(fds[1]), str(log.absolute()) if log else ""]
    return [*guarded, "1" if takes_output else "", guard.SEPARATOR.join(command)]
