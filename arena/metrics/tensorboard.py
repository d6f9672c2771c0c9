"""Metrics as TensorBoard event files: one directory per policy, agent steps as the step.

tensorboardX knows the messages and checksums; the files are written here. Its own writer hands
every value to a thread, which dies at the first error of the disk, and then whoever writes waits
for ever; and its flush waits for the disk, file by file.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from arena.errors import ConfigError

MAX_OPEN_FILES = 64


class TensorboardSink:
    """Writes ``<directory>/<population>/<policy>/events.out.tfevents.*``.

    A file costs a descriptor, so only the most recently used ones stay open: a run may have
    thousands of policies. A policy that comes back gets another file in the same directory, which
    TensorBoard shows as one curve. So does one whose file ends with a record that the disk refused:
    nothing is read behind a torn record.
    """

    def __init__(self, directory: Path, *, max_open_files: int = MAX_OPEN_FILES) -> None:
        if max_open_files < 1:
            raise ValueError(f"max_open_files must be at least 1, got {max_open_files}")
        self._directory = directory
        self._max_open_files = max_open_files
        self._num_opened = 0
        self._files: OrderedDict[str, _EventFile] = OrderedDict()

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve of the policy.

        Raises:
            OSError: If the disk refuses.
        """
        file = self._file(policy)
        try:
            file.write(agent_steps, metrics)
        except OSError:
            self._files.pop(policy).close()
            raise

    def flush(self) -> None:
        """Nothing to do: every record is with the operating system at once."""

    def close(self) -> None:
        """Close every file."""
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, policy: str) -> _EventFile:
        if policy in self._files:
            self._files.move_to_end(policy)
            return self._files[policy]
        if len(self._files) >= self._max_open_files:
            self._files.popitem(last=False)[1].close()
        self._num_opened += 1
        file = self._files[policy] = _EventFile(self._open(policy))
        return file

    def _open(self, policy: str) -> Path:
        # A run directory that was moved away does not come back with nothing but curves in it.
        if not self._directory.parent.is_dir():
            gone = str(self._directory.parent)
            raise FileNotFoundError(errno.ENOENT, "the sink's directory is gone", gone)
        directory = self._directory / policy
        directory.mkdir(parents=True, exist_ok=True)
        # Named by the second: a suffix keeps two of one second apart.
        when = f"{int(time.time()):010d}.{socket.gethostname()}"
        return directory / f"events.out.tfevents.{when}.{os.getpid()}.{self._num_opened}"


class _EventFile:
    """Records of TensorBoard's format: length u64, its checksum u32, bytes, their checksum u32."""

    def __init__(self, path: Path) -> None:
        try:
            from tensorboardX.proto.event_pb2 import Event
            from tensorboardX.proto.summary_pb2 import Summary
            from tensorboardX.record_writer import masked_crc32c
        except ImportError as error:
            raise ConfigError(
                "metrics.sinks names tensorboard: pip install 'tensorboardx>=2.6.4'"
            ) from error
        self._event, self._summary, self._checksum = Event, Summary, masked_crc32c
        self._file = path.open("xb", buffering=0)
        try:
            self._append(Event(wall_time=time.time(), file_version="brain.Event:2"))
        except OSError:
            self._file.close()
            raise

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()
        ]
        summary = self._summary(value=values)
        self._append(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._file.close()

    def _append(self, event: object) -> None:
        data: bytes = event.SerializeToString()  # type: ignore[attr-defined]
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", self._checksum(part)) for part in (length, data)]
        record = length + checksums[0] + data + checksums[1]
        if self._file.write(record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
