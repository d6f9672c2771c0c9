"""Log file that is bounded: its beginning and the latest stay, what lies between is left out.

Imports next to nothing: each guard of a process has one.

Tests: `tests/arena/processes/test_bounded_log.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat

# Type checkers know this name; importing `typing` would take longer than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from _typeshed import ReadableBuffer, StrPath

MAX_BYTES = 1_000_000
"""Most bytes of a log file."""

HEAD_BYTES, TAIL_BYTES = 200_000, 300_000
"""Bytes of the beginning and of the latest that stay when a file becomes too long."""

STEP_BYTES = 1 << 16
"""Most bytes that are appended at a time."""

_BEGIN, _END = b"\n[arena: ", b" bytes of this log were left out here]\n"
_MARK_BYTES = len(_BEGIN) + 20 + len(_END)


class BoundedLog(io.RawIOBase):
    """File that is appended to, of at most `MAX_BYTES`; several processes may write to one.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path: StrPath) -> None:
        # O_APPEND is not used, because with it Linux writes only at the end.
        self._fd = _open(path, 0)

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._fd

    def write(self, data: ReadableBuffer, /) -> int:
        """Append bytes; bytes that a full disk refuses are lost."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), STEP_BYTES):
            self._append(view[at : at + STEP_BYTES])
        return len(view)

    def _append(self, rest: memoryview) -> None:
        with contextlib.suppress(OSError), _locked(self._fd):
            size = os.fstat(self._fd).st_size
            if size + len(rest) > MAX_BYTES:
                size = _shorten(self._fd, size)
            while rest:
                written = os.pwrite(self._fd, rest, size)
                rest, size = rest[written:], size + written

    def close(self) -> None:
        """Close the file; repeating it does nothing."""
        if not self.closed:
            os.close(self._fd)
        super().close()


def open_shortened(path: StrPath) -> BinaryIO:
    """Open a file that is appended to without bound, and shorten it to `MAX_BYTES`.

    Raises:
        OSError: If it cannot be opened.
    """
    fd = _open(path, os.O_APPEND)
    with BoundedLog(path) as log, contextlib.suppress(OSError), _locked(log.fileno()):
        size = os.fstat(log.fileno()).st_size
        if size > MAX_BYTES:
            _shorten(log.fileno(), size)
    return open(fd, "ab", buffering=0)


def _open(path: StrPath, flags: int) -> int:
    """Open a log, which is no link: a run from elsewhere must not name the user's other files."""
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "a log must be a file, not a link", os.fspath(path)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "a log must be a regular file", os.fspath(path))
    return fd


def _shorten(fd: int, size: int) -> int:
    """Remove the middle of a file, note its size there, and return the file's new size."""
    # The mark is at a fixed position, so the same text elsewhere is no mark.
    before, begun, rest = os.pread(fd, _MARK_BYTES, HEAD_BYTES).partition(_BEGIN)
    number, ended, _ = rest.partition(_END)
    if begun and not before and ended and number.isdigit():
        known, begins = int(number), HEAD_BYTES + len(_BEGIN + number + _END)
    else:
        known, begins = 0, HEAD_BYTES
    tail = os.pread(fd, TAIL_BYTES, max(begins, size - TAIL_BYTES))
    tail = tail[tail.find(b"\n") + 1 :]
    left_out = known + size - begins - len(tail)
    middle = b"%s%d%s%s" % (_BEGIN, left_out, _END, tail)
    os.pwrite(fd, middle, HEAD_BYTES)
    os.ftruncate(fd, HEAD_BYTES + len(middle))
    return HEAD_BYTES + len(middle)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Keep other writers of a file waiting."""
    # Some file systems have no locks; then simultaneous writers may lose a line.
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
