"""Reading and writing of files that others may have written or replaced. Torch-free.

Only regular files are read, and only up to the size limit of their kind: opening a pipe would
block, a device never ends, and a sparse file takes no disk and all memory. Nothing is written
through a link, which may lead out of the run. All faults are OSErrors, like those of the disk.

Tests: `tests/arena/test_files.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO

from pydantic_core import from_json

MAX_LINE_BYTES = 1 << 22
"""Most bytes of a line: a user may name a metric by a text of a million characters."""

MAX_SKIPPED_BYTES = 1 << 26
"""Most bytes without a line end that are skipped in search of the next line."""

MAX_DOCUMENT_BYTES = 1 << 24
"""Most bytes of a JSON document that a run writes about itself."""


NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


_DIRECTORIES = re.compile(r"(?<![\w./:])/(?:[^\s/:;,'\"]+/)*(?=[^\s/])")


class NotRegular(OSError):
    """Error: a directory, pipe, socket, device or link is in the place of a file."""


def open_regular(path: Path, *, follows_links: bool = True) -> BufferedReader:
    """Open a regular file for reading without blocking.

    Args:
        path: Path of the file.
        follows_links: Whether a link to a file counts as a file.

    Raises:
        NotRegular: If it is no regular file.
        OSError: If there is none, or it cannot be opened.
    """
    links = 0 if follows_links else os.O_NOFOLLOW
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | links)
    return open(_regular(descriptor, path), "rb")


def _regular(descriptor: int, path: Path) -> int:
    """Return the descriptor of a file that was opened; close it if that is no regular one."""
    try:
        # The open file is checked, because the path may be replaced between a check and the
        # opening.
        _require_regular(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def own_file(path: str | Path, flags: int, mode: int = 0o666) -> int:
    """Open a file of a run to write to it: the ``opener`` of `open`.

    Args:
        path: Path of the file; its last part must not be a link.
        flags: Flags of `os.open`.
        mode: Permissions of a new file.

    Raises:
        NotRegular: If a link, or anything else that is no file, is in its place.
        OSError: If it cannot be opened.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its reader.
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | more, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _require_regular(stat.S_IFLNK, Path(path))
        raise
    return _regular(descriptor, Path(path))


def append_own(path: Path) -> FileIO:
    """Open a file of a run to append to it: each write is handed to the system at once.

    Raises:
        OSError: As `own_file` does.
    """
    return open(path, "ab", buffering=0, opener=own_file)


def write_own(path: Path, text: str) -> None:
    """Write the text of a file of a run.

    Raises:
        OSError: As `own_file` does, or if the disk refuses.
    """
    with open(path, "w", encoding="utf-8", opener=own_file) as file:
        file.write(text)


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, is_durable: bool = False) -> Iterator[IO[bytes]]:
    """Write a file of a run beside it, and put it in its place at the end: a reader finds the old
    one or the new one, whole, and after an error the old one stays.

    Args:
        path: Path of the file.
        mode: Permissions of the new one.
        is_durable: Whether its bytes and its name are on disk on return.

    Yields:
        The new file.

    Raises:
        OSError: As `own_file` does, or if the disk refuses.
    """
    # The file is in the same directory, because a rename is atomic only within a file system. Its
    # name has the process id, so that two writers do not share it.
    new = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        with open(new, "wb", opener=lambda name, flags: own_file(name, flags, mode)) as file:
            yield file
            file.flush()
            if is_durable:
                # Without fsync before the rename, the name may lead to an empty file after a power
                # loss.
                os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        # After a full disk the temporary file is still there; after a rename it is not.
        new.unlink(missing_ok=True)
    if is_durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to disk, which makes a rename in it durable.

    Raises:
        OSError: If the disk refuses.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_regular(path: Path, *, follows_links: bool = True) -> None:
    """Refuse a file that something else opens by its path, unless it is regular or not there.

    Args:
        path: Path of the file.
        follows_links: Whether a link to a file counts as a file.

    Raises:
        NotRegular: If it is no regular file.
        OSError: If the path leads nowhere else than to nothing.
    """
    try:
        mode = path.stat(follow_symlinks=follows_links).st_mode
    except FileNotFoundError:
        return
    _require_regular(mode, path)


def _require_regular(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise NotRegular(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(mode):
        words = "a symbolic link, and a run writes through none"
        raise NotRegular(errno.ELOOP, words, str(path))
    if not stat.S_ISREG(mode):
        raise NotRegular(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: Path, *, limit_bytes: int, follows_links: bool = True) -> bytes:
    """Read a regular file of at most so many bytes.

    Raises:
        OSError: If it is none, is longer, or cannot be read.
    """
    with open_regular(path, follows_links=follows_links) as file:
        # One extra byte shows whether the file is too long, because it may grow while it is read.
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"must have at most {limit_bytes} bytes, has more", str(path))
    return data


def read_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a regular file, with their ends; None for one that is too long.

    Nothing comes after a line of more than `MAX_SKIPPED_BYTES`, because a sparse file has any
    length.

    Raises:
        OSError: If it is none, or cannot be read.
    """
    with open_regular(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n") or len(line) < MAX_LINE_BYTES:
                yield line
                continue
            yield None
            # The rest of a long line is skipped, because it is no line of its own.
            skipped = 0
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                skipped += len(rest)
                if skipped > MAX_SKIPPED_BYTES:
                    return


def read_json_object(path: Path) -> dict[str, object]:
    """Read a JSON document of a run's directory, which is an object.

    Raises:
        OSError: If it is no regular file, is too long, or cannot be read.
        ValueError: If it is no JSON object of finite numbers.
    """
    document = json_object(read_regular(path, limit_bytes=MAX_DOCUMENT_BYTES))
    # A number beyond all floats was read as infinite, which dumps refuses.
    json.dumps(document, allow_nan=False)
    return document


def json_object(data: bytes) -> dict[str, object]:
    """Return a JSON object; of its numbers one beyond all floats is infinite.

    Raises:
        ValueError: If it is no JSON object, or is nested deeper than about 200 levels.
    """
    # The standard library's reader would accept NaN, and its depth is limited by the stack.
    value = from_json(data, allow_inf_nan=False)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def words_of(error: OSError) -> str:
    """Return the system's message, with the limit if no descriptor is left."""
    words = error.strerror or str(error)
    if error.errno not in NO_DESCRIPTORS:
        return words
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{words}: no file descriptor is left, this process may have {limit} (ulimit -n)"


def without_directories(text: str) -> str:
    """Return a text with absolute paths reduced to names, for readers on other machines."""
    return _DIRECTORIES.sub("", text)
