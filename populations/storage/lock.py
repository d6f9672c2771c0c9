"""Lock that allows one controller per run directory.

The kernel has the lock (``flock``) and releases it when its holder dies, however it dies. The
process id in the file is for people, for `lock_holder`, and for `is_released`, because a killed
holder leaves it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from arena.errors import ArenaError
from arena.files import open_regular, own_file
from arena.processes.guard import command_pid
from populations.errors import RunInUse, StorageError

LOCK = "controller.lock"

UNKNOWN_PID = 0

# A concurrent `lock_holder` takes the lock for some microseconds, and a controller whose command
# was killed ends some milliseconds later, so retries for a second avoid false refusals.
_PATIENCE_S = 1.0
_RETRY_S = 0.01

_MAX_BYTES = 32
"""Maximum length of a process id with the end of its line."""


class RunLock:
    """Lock of a run directory, from its construction to `release` or the end of the process.

    ::

        with RunLock(run_dir):
            ...  # no other process writes here

    Raises:
        RunInUse: If another process, or another RunLock of this process, has the lock.
        StorageError: If the lock file cannot be written.
    """

    def __init__(self, run_dir: Path) -> None:
        self._descriptor, self._found = _acquire(run_dir)

    def release(self, *, content: bytes = b"") -> None:
        """Release the lock; repeating it does nothing.

        Args:
            content: New content of the file; empty after an orderly end (`is_released`).
        """
        descriptor, self._descriptor = self._descriptor, -1
        # Write the file before the lock is released, as the next holder may write it afterwards.
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, content, 0)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A resume that is refused has not cleaned up after a killed holder, so the process id of
        # that holder is restored as the sign of it.
        refused = kind is not None and issubclass(kind, ArenaError | KeyboardInterrupt)
        self.release(content=self._found if refused else b"")


def lock_holder(run_dir: Path) -> int | None:
    """Return the id of the process that has a run directory, without disturbing it.

    Returns:
        Its process id; `UNKNOWN_PID` if the holder did not write one; None if the lock is free.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        descriptor = os.open(run_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{run_dir / LOCK}: {error.strerror}") from error
    try:
        # The lock is shared, so that concurrent calls do not mistake each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def is_released(run_dir: Path) -> bool:
    """Return whether the last holder released the lock; False if it still runs or was killed."""
    try:
        with open_regular(run_dir / LOCK) as file:
            return not file.read(1)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StorageError(f"{run_dir / LOCK}: {error.strerror}") from error


def _acquire(run_dir: Path) -> tuple[int, bytes]:
    """Return the descriptor of the locked file, and the content that the last holder left."""
    path = run_dir / LOCK
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            # A child must not inherit the descriptor, or it would have the lock after this process.
            descriptor = own_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        try:
            # flock belongs to the open file, so a second lock of the same process is refused, too.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, the file may have been deleted with its directory and
            # created again.
            if _is_still_there(path, descriptor):
                found = os.pread(descriptor, _MAX_BYTES, 0)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{command_pid()}\n".encode(), 0)
                return descriptor, found
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                pid = _pid(descriptor)
                os.close(descriptor)
                raise RunInUse(str(run_dir), pid or None) from None
            time.sleep(_RETRY_S)
        except OSError as error:
            os.close(descriptor)
            raise StorageError(f"{path}: {error.strerror}") from error
        os.close(descriptor)


def _is_still_there(path: Path, descriptor: int) -> bool:
    """Return whether the path still leads to the locked file, which others would lock."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _pid(descriptor: int) -> int:
    text = os.pread(descriptor, _MAX_BYTES, 0).strip()
    return int(text) if text.isdigit() else UNKNOWN_PID
