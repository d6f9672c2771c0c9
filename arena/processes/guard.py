"""Guard: a small process that stands between a process and its parent, and ends all below it.

``stand_guard`` forks. The child goes on; the process that was there remains as its guard: it passes
signals on, ends as the child ends, and before it does it kills every process that is left below it,
also daemons and leaders of sessions of their own, which the kernel hands to it when their parents
end (a "child subreaper"). It does so, too, when its own parent is gone. Whatever is below a guard
has it or another guard above it, so nothing escapes.

Guards stand in pairs, one below the other, so that each sees to what the other leaves behind when
it is killed: nothing stays unless both are killed at once. `arena.processes.parent` starts
processes below such a pair, by running this file, and a command goes on below one (``contain``).

Where the kernel knows no subreapers (macOS) one guard stands, and ends the process group of its
child, and a child asks for its own end (`arena.processes.child`).

Imports next to nothing: a guard starts in 20 ms and has some MB.

Tests: `tests/arena/processes/test_guard.py`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

HAS_REAPERS = sys.platform == "linux"

DEATH_FD = "ARENA_DEATH_FD"
"""Environment variable with the pipe whose end says that the guard is gone, where the kernel does
not say it."""

NO_PIPE = -1
SEPARATOR = "\x1f"
"""Separator of a command's arguments, which its guard gets as a single argument."""

EXIT_ORPHANED = 1
EXIT_CANNOT_RUN = 127

LOOK_S = 0.05
"""Longest time between two checks for remaining processes."""

CHUNK = 1 << 16

# The numbers are from <linux/prctl.h>.
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_PASSED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT),
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import NoReturn

    from _typeshed import StrPath

    from arena.processes.bounded_log import BoundedLog


def die_with_parent(parent_pid: int) -> None:
    """Have this process killed when the thread that started it ends, and end if it has already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent is checked after prctl, because a parent that ended before sends no signal.
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)


def _prctl(option: int, value: int) -> None:
    if HAS_REAPERS:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


_command_pid: int | None = None
_removals_fd, _removed_fd = NO_PIPE, NO_PIPE
"""Pipe with the names of directories: the guards' end, and the command's end."""


def command_pid() -> int:
    """Return the process that stands for this one: the outermost guard of a contained command."""
    return _command_pid or os.getpid()


def contain() -> None:
    """Go on in a process below a pair of guards: what it starts ends with this process.

    Call it before there are threads. Where the kernel knows no subreapers it does nothing.
    """
    global _command_pid, _removals_fd, _removed_fd
    if HAS_REAPERS:
        _fill_streams()
        _command_pid = os.getpid()
        _removals_fd, _removed_fd = os.pipe()
        os.close(_stand_pair(NO_PIPE))
        os.close(_removals_fd)


def _fill_streams() -> None:
    """Open closed standard streams, so that no other file gets their descriptors."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def remove_at_end(directory: StrPath) -> None:
    """Have the guards of a contained command remove a directory when it and all below is gone."""
    if _removed_fd != NO_PIPE:
        os.write(_removed_fd, os.fsencode(directory) + b"\0")


def stand_guard(
    parent_fd: int,
    *,
    output_fd: int = NO_PIPE,
    log: BoundedLog | None = None,
    stop: signal.Signals = signal.SIGSTOP,
) -> int:
    """Go on in a child, which leads a session; this process watches over it and never returns.

    Args:
        parent_fd: Pipe whose end says that the parent of this process is gone; `NO_PIPE`: it is not
            waited for.
        output_fd: Pipe whose content goes to the log.
        log: The log.
        stop: Signal that stops the child when this process is stopped by Ctrl-Z: SIGTSTP where it
            is a guard, and stops what is below it.

    Returns:
        In the child: a pipe whose end says that this guard is gone.
    """
    guard = _Guard(parent_fd, output_fd, log, stop)
    # The child does not inherit this setting.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard.child = os.fork()
    if guard.child:
        guard.watch()
    return guard.leave()


def _stand_pair(parent_fd: int, *, output_fd: int = NO_PIPE, log: BoundedLog | None = None) -> int:
    """Go on below two guards, and die with the inner one; see `stand_guard`."""
    between_fd = stand_guard(parent_fd, output_fd=output_fd, log=log, stop=signal.SIGTSTP)
    guard_pid = os.getpid()
    death_fd = stand_guard(between_fd)
    # A guard must not die this way, because it has to end the processes below it.
    die_with_parent(guard_pid)
    return death_fd


class _Guard:
    """One guard. Its signals are bytes in a pipe, so nothing happens between two others."""

    def __init__(
        self, parent_fd: int, output_fd: int, log: BoundedLog | None, stop: signal.Signals
    ) -> None:
        self.child = 0
        self._stop = stop
        self._parent_fd = parent_fd
        self._output_fd = output_fd
        self._log = log
        self._status: int | None = None
        self._child_fd, self._own_fd = os.pipe()
        self._wake_fd, wake_fd = os.pipe()
        os.set_blocking(wake_fd, False)
        os.set_blocking(self._wake_fd, False)
        self._fds = {self._own_fd, self._wake_fd, wake_fd, parent_fd, output_fd}
        # A signal that was ignored at the start (`nohup`) stays ignored by the guard, too.
        self._before = {
            number: signal.getsignal(number)
            for number in (*_PASSED_ON, signal.SIGTSTP, signal.SIGCHLD)
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        }
        # Handlers are set before the fork, so that an early signal waits in the pipe.
        self._wake_before = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
        for number in self._before:
            signal.signal(number, lambda number, frame: None)

    def leave(self) -> int:
        """Become the child again, and return the pipe that tells of the guard's end."""
        signal.set_wakeup_fd(self._wake_before)
        for number, handler in self._before.items():
            # A handler of None was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for fd in self._fds - {NO_PIPE}:
            os.close(fd)
        os.setsid()
        return self._child_fd

    def watch(self) -> NoReturn:
        """Watch over the child until it or the parent has ended, end the rest, and end alike."""
        # The guard releases its standard streams, so that readers of a pipe do not wait for it.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        log_fd = NO_PIPE if self._log is None else self._log.fileno()
        _close_all_but({0, 1, 2, log_fd, _removals_fd, *self._fds})
        self._follow()
        if HAS_REAPERS:
            self._end_all()
        else:
            self._end_group()
        if self._output_fd != NO_PIPE:
            os.set_blocking(self._output_fd, False)
            while self._pump():
                pass
        if _removals_fd != NO_PIPE:
            _remove(_removals_fd)
        _end_like(self._status)

    def _follow(self) -> None:
        """Pass on signals and output until the child or the parent has ended."""
        poll = select.poll()
        for fd in {self._wake_fd, self._parent_fd, self._output_fd} - {NO_PIPE}:
            poll.register(fd, select.POLLIN)
        while self._status is None:
            for fd, _ in poll.poll():
                if fd == self._wake_fd:
                    self._hear()
                elif fd == self._output_fd:
                    if not self._pump():
                        poll.unregister(fd)
                # Nothing is ever written to this pipe, so an event means its end.
                elif fd == self._parent_fd:
                    return

    def _hear(self) -> None:
        numbers = os.read(self._wake_fd, CHUNK)
        self._reap()
        for number in numbers:
            if self._status is None and number == signal.SIGTSTP:
                self._pause()
            elif self._status is None and number in _PASSED_ON:
                os.kill(self.child, number)

    def _pause(self) -> None:
        """Stop what is below, then this process, until SIGCONT comes, which is passed on."""
        # SIGTSTP does not work here: the kernel ignores it for a group whose session has no
        # terminal.
        os.kill(self.child, self._stop)
        # A shell continues when this process stops, so all processes below are stopped first.
        self._note(os.waitpid(self.child, os.WUNTRACED))
        if self._status is None:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _reap(self) -> bool:
        """Take note of processes that have ended, and return whether any is left."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._note(found)
            return True
        return False

    def _note(self, found: tuple[int, int]) -> None:
        if found[0] == self.child and not os.WIFSTOPPED(found[1]):
            self._status = found[1]

    def _pump(self) -> bool:
        """Pass on some output; return whether there was any."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output_fd, CHUNK)
        if data and self._log is not None:
            self._log.write(data)
        return bool(data)

    def _end_all(self) -> None:
        """Kill children until there is none: what is left of theirs becomes this process's."""
        wake = select.poll()
        wake.register(self._wake_fd, select.POLLIN)
        while self._reap():
            # Only this process reaps its children, so no process id has been reused.
            killed = [_kill(pid) for pid in _children()]
            if killed and not any(killed):
                break
            wake.poll(LOOK_S * 1000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_fd, CHUNK)

    def _end_group(self) -> None:
        # The group may have no processes left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGKILL)
        if self._status is None:
            self._status = os.waitpid(self.child, 0)[1]


def _kill(pid: int) -> bool:
    """Kill a child; return whether that is allowed."""
    try:
        os.kill(pid, signal.SIGKILL)
    # The process belongs to another user, started by a program that may change its user.
    except PermissionError:
        return False
    return True


def _children() -> list[int]:
    """Return the children of this process, which has one thread."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    # This kernel does not have that file.
    except FileNotFoundError:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_of(name, pid)]


def _is_of(name: str, parent: int) -> bool:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            # The program's name comes before and may contain any characters.
            return int(file.read().rpartition(b")")[2].split()[1]) == parent
    # The process has just ended.
    except OSError:
        return False


def _remove(fd: int) -> None:
    """Remove the directories that a pipe names."""
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        for name in os.read(fd, CHUNK).split(b"\0")[:-1]:
            import shutil

            shutil.rmtree(name, ignore_errors=True)


def _close_all_but(fds: Collection[int]) -> None:
    for name in os.listdir("/dev/fd"):
        if int(name) not in fds:
            # The directory's own descriptor is closed by now.
            with contextlib.suppress(OSError):
                os.close(int(name))


def _end_like(status: int | None) -> NoReturn:
    """End as a child did: with its exit code, or by its signal."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        # The child has written its core dump already.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def main(argv: Sequence[str]) -> NoReturn:
    """Run a command below guards.

    Args:
        argv: A name for people, the pipe whose end says that the parent is gone, the pipe that the
            command's process id is written to, the log (empty: the output is not this guard's),
            whether standard output goes to the log, the command with its arguments.
    """
    _, parent, told, log_path, takes_output, words = argv
    parent_fd, pid_fd = int(parent), int(told)
    for fd in (parent_fd, pid_fd):
        # These descriptors belong to the guards and must not be inherited by the command.
        os.set_inheritable(fd, False)
    output_fd, log = NO_PIPE, None
    if log_path:
        from arena.processes.bounded_log import BoundedLog

        log = BoundedLog(log_path)
        output_fd, into_fd = os.pipe()
        os.dup2(into_fd, 2)
        if takes_output:
            os.dup2(into_fd, 1)
        os.close(into_fd)
    if HAS_REAPERS:
        _stand_pair(parent_fd, output_fd=output_fd, log=log)
    else:
        death_fd = stand_guard(parent_fd, output_fd=output_fd, log=log)
        os.set_inheritable(death_fd, True)
        os.environ[DEATH_FD] = str(death_fd)
    # The process id is sent before the command begins, so that it is known to any process that the
    # command contacts.
    with contextlib.suppress(OSError):
        os.write(pid_fd, b"%d\n" % os.getpid())
    command = words.split(SEPARATOR)
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(EXIT_CANNOT_RUN)


if __name__ == "__main__":
    # The file runs by its path without the interpreter's packages, which take long to find.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    main(sys.argv[1:])
