"""Memory of the machine available to this process and its siblings. Torch-free.

Tests: `tests/arena/learners/work/test_episodes.py`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_bytes() -> int:
    """Return the memory of the machine, or a container's limit of it."""
    there: int = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        # The file has a number, or "max" without a limit. Version 1 of cgroups and macOS have no
        # such file.
        return min(there, int(CGROUP_LIMIT.read_text()))
    return there
