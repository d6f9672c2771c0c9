"""Arrays over environments in memory that several processes share.

Shapes: B environments.

Tests: `tests/arena/envs/workers/test_worker_envs.py`.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes of a cache line; different arrays lie in different lines."""


class SharedArrays:
    """Arrays one after the other in shared memory; a process sees its own environments in them.

    Processes that allocate the same arrays in the same order see the same numbers.

    Args:
        memory: The memory, zero at first. None: arrays are only measured, not shared.
        num_envs: B of the whole batch.
        first: Index of the first environment that this process sees.

    Attributes:
        num_bytes: Size of all arrays so far.
    """

    def __init__(self, memory: mmap.mmap | None, *, num_envs: int, first: int = 0) -> None:
        self._memory = memory
        self._num_envs = num_envs
        self._first = first
        self.num_bytes = 0

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return this process's environments of the next array.

        Args:
            shape: Shape of this process's part; the first dimension is that of environments.
            dtype: Dtype.
        """
        whole, kind = (self._num_envs, *shape[1:]), np.dtype(dtype)
        start = self.num_bytes
        self.num_bytes += -(-math.prod(whole) * kind.itemsize // ALIGNMENT) * ALIGNMENT
        if self._memory is None:
            return np.zeros(shape, kind)
        array: npt.NDArray[Any] = np.ndarray(whole, kind, buffer=self._memory, offset=start)
        return array[self._first : self._first + shape[0]]


@contextmanager
def anonymous_memory(num_bytes: int) -> Iterator[int]:
    """Open zeroed memory without a name; it lives as long as a process has it mapped or open.

    Yields:
        Its file descriptor, which is closed at the end.
    """
    # Other systems use a deleted file, so that nothing is left after a kill.
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("arena-environments", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, num_bytes)
        yield fd
    finally:
        os.close(fd)
