"""Metrics as TensorBoard event files: one directory per policy, agent steps as the step.

The files are written here, because the usual writer hands every value to a thread that ends at the
first disk error, after which its callers wait for ever. Its flush also waits for the disk, file by
file. The package that encodes events imports torch, which the controller must not: it would block
for seconds and take 200 MB.

A record is its length (u64), the masked checksum of the length (u32), an ``Event`` of TensorFlow's
event.proto in protocol buffers, and its masked checksum.

Tests: `tests/arena/metrics/test_sinks.py`, `tests/faults/test_storage_runs.py`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from arena.files import append_own
from arena.metrics.rotation import WHOLE, Rotation

# Each open file takes a descriptor, and a run may have thousands of policies.
MAX_OPEN_FILES = 64

PREFIX = "events.out.tfevents."
"""Begin of a file's name, by which TensorBoard finds it."""


_POLYNOMIAL = 0x82F63B78

_MASK = 0xA282EAD8

# Field numbers and wire types of Event, Summary and Summary.Value, encoded as protobuf keys.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = b"\x09", b"\x10", b"\x1a", b"\x2a"

_VALUE = b"\x0a"

_TAG, _SIMPLE_VALUE = b"\x0a", b"\x15"

FILE_VERSION = "brain.Event:2"


class TensorboardSink:
    """Sink that writes ``<directory>/<population>/<policy>/events.out.tfevents.*``.

    Only the most recently used files stay open. A policy may have several files in its directory,
    which TensorBoard shows as one curve.

    Args:
        directory: Directory of all curves.
        rotation: Size of all policies' files together from which on each policy begins a new one,
            and size of the older files that stay, those of earlier processes included.
        max_open_files: Most files that are open at a time.
    """

    def __init__(
        self,
        directory: Path,
        *,
        rotation: Rotation = WHOLE,
        max_open_files: int = MAX_OPEN_FILES,
    ) -> None:
        if max_open_files < 1:
            raise ValueError(f"max_open_files must be at least 1, got {max_open_files}")
        self._directory = directory
        self._max_open_files = max_open_files
        self._rotation = rotation
        self._written_bytes = 0
        self._num_opened = 0
        self._files: OrderedDict[str, _EventFile] = OrderedDict()
        self._paths: dict[str, Path] = {}
        self._remove_oldest()

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve of the policy.

        Raises:
            OSError: If the disk refuses.
        """
        if self._rotation.is_due(self._written_bytes):
            self.close()
            self._paths.clear()
            self._written_bytes = 0
            self._remove_oldest()
        file = self._file(policy)
        try:
            self._written_bytes += file.write(agent_steps, metrics)
        except OSError:
            # TensorBoard reads nothing after an incomplete record, so the policy continues in
            # another file.
            self._files.pop(policy).close()
            del self._paths[policy]
            raise

    def flush(self) -> None:
        """Do nothing, because every record is handed to the operating system when it is written."""

    def close(self) -> None:
        """Close every file."""
        while self._files:
            self._files.popitem()[1].close()

    def _remove_oldest(self) -> None:
        """Remove the oldest files; nothing is open."""
        files = [path for path in self._directory.rglob(f"{PREFIX}*") if path.is_file()]
        # Files are sorted by the time of their last point, so that all curves lose about the same
        # period.
        files.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
        self._rotation.remove_oldest(files)

    def _file(self, policy: str) -> _EventFile:
        if policy in self._files:
            self._files.move_to_end(policy)
            return self._files[policy]
        if len(self._files) >= self._max_open_files:
            # The least recently used file is closed; its path is kept to open it again.
            self._files.popitem(last=False)[1].close()
        # Only paths of this process are reused, because a killed one may have left an incomplete
        # record.
        path = self._paths.get(policy) or self._new_path(policy)
        file = self._files[policy] = _EventFile(path)
        self._paths[policy] = path
        return file

    def _new_path(self, policy: str) -> Path:
        # The root must exist, because a run directory that was moved away must not reappear with
        # only curves in it.
        if not self._directory.parent.is_dir():
            missing = str(self._directory.parent)
            raise FileNotFoundError(errno.ENOENT, "the sink's directory is gone", missing)
        self._num_opened += 1
        directory = self._directory / policy
        directory.mkdir(parents=True, exist_ok=True)
        # File names have a resolution of one second, so a suffix separates files of the same
        # second.
        when = f"{int(time.time()):010d}.{socket.gethostname()}"
        return directory / f"{PREFIX}{when}.{os.getpid()}.{self._num_opened}"


class _EventFile:
    """Event file to append to; a partly written record is an error."""

    def __init__(self, path: Path) -> None:
        self._file = append_own(path)
        try:
            # A reopened file has its version record already.
            if self._file.tell() == 0:
                self._append(version_record(wall_time_s=time.time()))
        except OSError:
            self._file.close()
            raise

    def write(self, step: int, metrics: Mapping[str, float]) -> int:
        """Append a record, and return its size in bytes."""
        record = scalars_record(step, metrics, wall_time_s=time.time())
        self._append(record)
        return len(record)

    def close(self) -> None:
        self._file.close()

    def _append(self, record: bytes) -> None:
        # The file is unbuffered, and a full disk may accept part of the record without an error.
        if self._file.write(record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)


def version_record(*, wall_time_s: float) -> bytes:
    """Return the first record of a file."""
    return _record(_time(wall_time_s) + _message(_FILE_VERSION, FILE_VERSION.encode()))


def scalars_record(step: int, scalars: Mapping[str, float], *, wall_time_s: float) -> bytes:
    """Return one point of each curve.

    Args:
        step: Position on the curves, at least 0.
        scalars: Values by tag; a value beyond float32 becomes infinite.
        wall_time_s: Seconds since 1970.
    """
    values = b"".join(
        _message(_VALUE, _message(_TAG, tag.encode()) + _SIMPLE_VALUE + _float32(value))
        for tag, value in scalars.items()
    )
    # Protocol buffers omit fields of value 0.
    counted = _STEP + _varint(step) if step else b""
    return _record(_time(wall_time_s) + counted + _message(_SUMMARY, values))


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), masked so that a checksum over checksums stays useful."""
    crc = 0xFFFFFFFF
    for byte in data:
        # One byte is processed at a time, lowest bit first; the initial and the final value are
        # inverted.
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    # mask(c) = (c rotated right by 15 bits) + 0xA282EAD8, modulo 2^32
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, event))
    return length + next(checksums) + event + next(checksums)


def _time(seconds: float) -> bytes:
    return _WALL_TIME + struct.pack("<d", seconds)


def _message(key: bytes, content: bytes) -> bytes:
    return key + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Encode seven bits to a byte, the lowest first; the highest bit says that more follow."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _float32(value: float) -> bytes:
    # struct raises for a value beyond float32, while array makes it infinite.
    return struct.pack("<f", array("f", [value])[0])


def _table_entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


_TABLE = tuple(_table_entry(byte) for byte in range(256))
