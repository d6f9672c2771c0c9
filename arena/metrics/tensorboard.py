"""Metrics as TensorBoard event files: one directory per policy, agent steps as the step."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from arena.errors import ConfigError

MAX_OPEN_WRITERS = 64


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class TensorboardSink:
    """Writes ``<directory>/<population>/<policy>/events.out.tfevents.*``.

    A writer costs a thread and a file descriptor, so only the most recently used ones stay open:
    a run may have thousands of policies. A policy that comes back gets another file in the same
    directory, which TensorBoard shows as one curve.
    """

    def __init__(self, directory: Path, *, max_open_writers: int = MAX_OPEN_WRITERS) -> None:
        if max_open_writers < 1:
            raise ValueError(f"max_open_writers must be at least 1, got {max_open_writers}")
        self._directory = directory
        self._max_open_writers = max_open_writers
        self._num_opened = 0
        self._writers: OrderedDict[str, _Writer] = OrderedDict()

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve of the policy."""
        writer = self._writer(policy)
        for name, value in metrics.items():
            writer.add_scalar(name, value, agent_steps)

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Flush and close every file."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _writer(self, policy: str) -> _Writer:
        if policy in self._writers:
            self._writers.move_to_end(policy)
            return self._writers[policy]
        if len(self._writers) >= self._max_open_writers:
            self._writers.popitem(last=False)[1].close()
        writer = self._writers[policy] = self._open(policy)
        return writer

    def _open(self, policy: str) -> _Writer:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "metrics.sinks names tensorboard: pip install 'tensorboardx>=2.6.4'"
            ) from error
        self._num_opened += 1
        # tensorboardX names files by the second: a suffix keeps two of one second apart.
        suffix = f".{os.getpid()}.{self._num_opened}"
        logdir = str(self._directory / policy)
        return cast(_Writer, SummaryWriter(logdir=logdir, filename_suffix=suffix))
