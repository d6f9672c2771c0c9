"""How much memory the machine has for this process and those beside it. Torch-free."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_bytes() -> int:
    """Memory that there is, or that a container may have of it."""
    there: int = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        # A number, or "max".
        return min(there, int(CGROUP_LIMIT.read_text()))
    return there
