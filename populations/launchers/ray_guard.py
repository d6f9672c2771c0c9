"""Process that ends a run's own Ray together with the controller, even if that is killed.

When the controller ends, most processes of Ray end at once, its agents a minute later, and its
files remain. ``python -m populations.launchers.ray_guard DIRECTORY`` reads Ray's processes from
standard input, one a line (process id, start time), until the input is closed, as happens at the
latest with the end of its parent. Then it kills remaining processes and removes the directory.

Tests: `tests/integration/test_ray.py`.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

END_S = 10.0


def line_of(process: psutil.Process) -> str:
    """Return the line that identifies a process: id and start time."""
    return f"{process.pid} {process.create_time()!r}"


def end_ray(directory: Path, lines: Iterable[str]) -> None:
    """Kill the remaining processes of Ray, and remove its files."""
    known = list(_alive(lines))
    for process in known:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(known, timeout=END_S)
    # Ray's workers end by themselves; until then they may write new files, so removal is repeated.
    until_s = time.monotonic() + END_S
    while directory.exists() and time.monotonic() < until_s:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.1)


def _alive(lines: Iterable[str]) -> Iterable[psutil.Process]:
    for line in lines:
        pid, started = line.split()
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            # The system may have given the process id to another process meanwhile.
            if process.create_time() == float(started):
                yield process


if __name__ == "__main__":
    end_ray(Path(sys.argv[1]), sys.stdin.readlines())
