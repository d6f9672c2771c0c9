"""Log file that is bounded: its beginning and the latest stay, what lies between is left out.

Imports next to nothing: each guard of a process has one.

Tests: `tests/arena/processes/test_bounded_log.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os

# The name tells type checkers; `typing` would take longer to import than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer, StrPath

MAX_BYTES = 1_000_000
"""Most bytes of a log file."""

HEAD_BYTES, TAIL_BYTES = 200_000, 300_000
"""Bytes of the beginning and of the latest that stay when a file becomes too long."""

STEP_BYTES = 1 << 16
"""Most bytes that are appended at a time."""

_BEGIN, _END = b"[arena: ", b" bytes of this log were left out here]\n"
_MARK_BYTES = len(_BEGIN) + 20 + len(_END)


class BoundedLog(io.RawIOBase):
    """File that is appended to, of at most `MAX_BYTES`; several processes may write to one.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path: StrPath) -> None:
        # Not O_APPEND, with which Linux takes no other place than the end.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._fd

    def write(self, data: ReadableBuffer, /) -> int:
        """Append bytes. What a full disk refuses is lost."""
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


def shorten_file(path: StrPath) -> None:
    """Shorten a file that others append to, if it has more than `MAX_BYTES`."""
    with contextlib.suppress(OSError), BoundedLog(path) as log, _locked(log.fileno()):
        size = os.fstat(log.fileno()).st_size
        if size > MAX_BYTES:
            _shorten(log.fileno(), size)


def _shorten(fd: int, size: int) -> int:
    """Leave out the middle of a file of a size, say how much that is, and return the new size."""
    head = os.pread(fd, HEAD_BYTES + _MARK_BYTES, 0)
    before, begun, rest = head.partition(_BEGIN)
    number, ended, _ = rest.partition(_END)
    if begun and ended and number.isdigit():
        # It was shortened before: its beginning is that of then.
        keep, known, begins = len(before), int(number), len(before + begun + number + ended)
    else:
        # Whole lines, if there are any.
        keep = begins = head.rfind(b"\n", 0, min(HEAD_BYTES, size)) + 1
        known = 0
    tail = os.pread(fd, TAIL_BYTES, max(begins, size - TAIL_BYTES))
    tail = tail[tail.find(b"\n") + 1 :]
    left_out = known + size - begins - len(tail)
    middle = b"%s%d%s%s" % (_BEGIN, left_out, _END, tail)
    os.pwrite(fd, middle, keep)
    os.ftruncate(fd, keep + len(middle))
    return keep + len(middle)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Keep other writers of a file waiting."""
    # A file system may have no locks; then two writers at a time may lose a line.
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
