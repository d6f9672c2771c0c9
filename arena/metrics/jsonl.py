"""Metrics as one JSON object per line, for programs: ``pandas.read_json(path, lines=True)``.

Tests: `tests/arena/metrics/test_sinks.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import zlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from arena.files import append_own, json_object, own_file
from arena.metrics.rotation import WHOLE, Rotation

SEAL = "crc32"
"""Last key of a line: CRC-32 of its bytes before the comma, as eight hexadecimal digits.

Without it, a changed digit would look like another number.
"""

KEYS = ("policy", "agent_steps")
"""Keys of a line that are no metrics."""

LINES_PER_FILE = 10**8
"""Most lines of one file that `numbered_lines` can number: ten gigabytes at the least."""

# A line is far shorter than a block, so the first block usually has a newline.
_TAIL_BYTES = 65536


class JsonlSink:
    """Sink that appends to one file per run. Every line is complete or was never there.

    A line is ``{"policy": "player/p003", "agent_steps": 120000, "loss/policy": -0.01, ...,
    "crc32": "0f3c21aa"}``.

    Args:
        path: File that it appends to.
        rotation: Size from which on the file is set aside, under the next free number before its
            suffix (``metrics.0001.jsonl``), and a new one begun; and size of those that stay.
    """

    def __init__(self, path: Path, *, rotation: Rotation = WHOLE) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._path, self._rotation = path, rotation
        rotation.remove_oldest(_set_aside(path).values())
        # The file is opened after the cut. It is unbuffered, so every line is handed to the system
        # at once or not at all.
        self._file = append_own(path)

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Append one line.

        Raises:
            ValueError: If a metric is not finite.
            OSError: If the disk refuses; nothing of the line is there then.
        """
        line = {"policy": policy, "agent_steps": agent_steps} | dict(metrics)
        body = json.dumps(line, allow_nan=False).encode().removesuffix(b"}")
        data = body + _seal(body)
        if self._rotation.is_due(os.fstat(self._file.fileno()).st_size):
            self._rotate()
        # A full disk may accept part of the line without an error.
        num_bytes = self._file.write(data)
        if num_bytes < len(data):
            self._file.truncate(self._file.tell() - num_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _rotate(self) -> None:
        """Set the file aside and begin a new one. If the disk refuses, the old one goes on."""
        path = self._path
        # The open file goes on under its new name until the next one is open, so that no line is
        # lost. It already has the new name if an earlier attempt could not open the next file.
        if path.exists():
            path.rename(_next_name(path))
        file = append_own(path)
        self._file.close()
        self._file = file
        self._rotation.remove_oldest(_set_aside(path).values())

    def flush(self) -> None:
        """Do nothing, because all lines are handed to the operating system."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def is_sealed(text: bytes) -> bool:
    """Return whether a line is unchanged since it was written; a line without a seal passes."""
    body, _, _ = text.rpartition(b", ")
    return f'"{SEAL}"'.encode() not in text or body + _seal(body) == text


def point_of(line: bytes) -> dict[str, Any] | None:
    """Return a line without its seal; None if it is incomplete, damaged or of another origin."""
    if not is_sealed(line):
        return None
    try:
        point: dict[str, Any] = json_object(line)
    except ValueError:
        return None
    point.pop(SEAL, None)
    steps = point.get("agent_steps")
    numbers = (value for key, value in point.items() if key not in KEYS)
    is_whole = isinstance(point.get("policy"), str) and type(steps) is int and steps >= 0
    return point if is_whole and all(map(_is_metric, numbers)) else None


def _is_metric(value: object) -> bool:
    # The sink writes no infinity: it is read from a number beyond all floats.
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def files_of(path: Path) -> list[Path]:
    """Return a file of metrics after those that were set aside, in the order of time."""
    return [*_set_aside(path).values(), path]


NumberedLine = tuple[int, dict[str, Any]]


def numbered_lines(path: Path) -> Generator[NumberedLine | None, None, None]:
    """Yield the lines of a file of metrics, after those that were set aside, as they are written.

    Each line has a number that it keeps when its file is set aside or older ones are removed: its
    place in its file, from 0, beside the file's number. Lines of files that are gone, and damaged
    ones, are left out.

    Args:
        path: File that is appended to.

    Yields:
        The next line with its number; None: nothing was written since.

    Raises:
        OSError: If the disk refuses.
    """
    begun = 0
    while True:
        number, name = min((n, one) for n, one in _files(path).items() if n >= begun)
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
            now = _files(path).get(number, path).stat()
            # The file may have been set aside since its name was looked up.
            if os.path.samestat(os.fstat(file.fileno()), now):
                yield from _lines_of(file, number, path)
                begun = number + 1
                continue
        yield None


def _lines_of(
    file: BinaryIO, number: int, path: Path
) -> Generator[NumberedLine | None, None, None]:
    """Yield the lines of a file until another one follows it."""
    place, is_followed = number * LINES_PER_FILE, False
    while True:
        line = file.readline()
        if line.endswith(b"\n"):
            if (point := point_of(line)) is not None:
                yield place, point
            place += 1
        elif is_followed:
            return
        else:
            # The line is still being written.
            file.seek(-len(line), os.SEEK_CUR)
            # A file that has a successor gets no more lines, so look for the successor before the
            # last read.
            is_followed = number < max(_files(path))
            if not is_followed:
                yield None


def _files(path: Path) -> dict[int, Path]:
    """Return the files by their numbers from 0: of the last one, that which it will get."""
    older = {number - 1: one for number, one in _set_aside(path).items()}
    return older | {max(older, default=-1) + 1: path}


def _seal(body: bytes) -> bytes:
    """Return the end of a line after these bytes."""
    return f', "{SEAL}": "{zlib.crc32(body):08x}"}}\n'.encode()


def _set_aside(path: Path) -> dict[int, Path]:
    """Return the files that were set aside, by their numbers, in order."""
    names = path.parent.glob(f"{path.stem}.*{path.suffix}")
    numbers = {name.stem.removeprefix(f"{path.stem}."): name for name in names}
    return dict(sorted((int(n), name) for n, name in numbers.items() if n.isdecimal()))


def _next_name(path: Path) -> Path:
    """Return the first name after all that were set aside: numbers go on after gaps."""
    last = max(_set_aside(path), default=0)
    return path.with_name(f"{path.stem}.{last + 1:04}{path.suffix}")


def _cut_torn_line(path: Path) -> None:
    """Drop the torn line that a crash left after the last newline."""
    # The next line would otherwise be appended to it.
    if not path.exists():
        return
    with open(path, "r+b", opener=own_file) as file:
        end = file.seek(0, 2)
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        # Without any newline, the whole file is one incomplete line.
        file.truncate(0)
