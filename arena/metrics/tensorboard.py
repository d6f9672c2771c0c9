"""Metrics as TensorBoard event files: one directory per policy, agent steps as the step.

The files are written here. The usual writer hands every value to a thread, which dies at the first
error of the disk, and then whoever writes waits for ever; and its flush waits for the disk, file by
file.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from arena.metrics.event_records import scalars_record, version_record

MAX_OPEN_FILES = 64


class TensorboardSink:
    """Writes ``<directory>/<population>/<policy>/events.out.tfevents.*``.

    A file costs a descriptor, so only the most recently used ones stay open: a run may have
    thousands of policies. A policy whose file ends with a record that the disk refused gets another
    one in the same directory, which TensorBoard shows as one curve: nothing is read behind a torn
    record. So does every policy in the next process.
    """

    def __init__(self, directory: Path, *, max_open_files: int = MAX_OPEN_FILES) -> None:
        if max_open_files < 1:
            raise ValueError(f"max_open_files must be at least 1, got {max_open_files}")
        self._directory = directory
        self._max_open_files = max_open_files
        self._num_opened = 0
        self._files: OrderedDict[str, _EventFile] = OrderedDict()
        self._paths: dict[str, Path] = {}

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
            del self._paths[policy]
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
        path = self._paths.get(policy) or self._new_path(policy)
        file = self._files[policy] = _EventFile(path)
        self._paths[policy] = path
        return file

    def _new_path(self, policy: str) -> Path:
        # A run directory that was moved away does not come back with nothing but curves in it.
        if not self._directory.parent.is_dir():
            gone = str(self._directory.parent)
            raise FileNotFoundError(errno.ENOENT, "the sink's directory is gone", gone)
        self._num_opened += 1
        directory = self._directory / policy
        directory.mkdir(parents=True, exist_ok=True)
        # Named by the second: a suffix keeps two of one second apart.
        when = f"{int(time.time()):010d}.{socket.gethostname()}"
        return directory / f"events.out.tfevents.{when}.{os.getpid()}.{self._num_opened}"


class _EventFile:
    """Appends records; what the disk takes only a part of is an error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        try:
            if self._file.tell() == 0:
                self._append(version_record(wall_time_s=time.time()))
        except OSError:
            self._file.close()
            raise

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._append(scalars_record(step, metrics, wall_time_s=time.time()))

    def close(self) -> None:
        self._file.close()

    def _append(self, record: bytes) -> None:
        if self._file.write(record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
