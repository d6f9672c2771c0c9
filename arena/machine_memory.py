"""Memory of the machine available to this process and its siblings. Torch-free."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_bytes() -> int:
    """Return the memory of the machine, or a container's limit of it."""
    there: int = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        # A number, or "max".
        return min(there, int(CGROUP_LIMIT.read_text()))
    return there
