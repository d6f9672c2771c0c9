"""``python -m populations.launchers.ray_guard DIRECTORY``: ends a run's own Ray with its parent.

Most processes of Ray end with the process that started Ray, its agents a minute later, its files
never. This process is told Ray's processes on its standard input, one a line (process id, time of
its start), and waits until that is closed, which the end of its parent does whatever causes it.
Then it kills what is left of them, and removes the directory.

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
    """Return the line that names a process."""
    return f"{process.pid} {process.create_time()!r}"


def end_ray(directory: Path, lines: Iterable[str]) -> None:
    """Kill what is left of Ray's processes, and remove its files."""
    known = list(_alive(lines))
    for process in known:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(known, timeout=END_S)
    # Its workers end by themselves, and may write until then.
    until_s = time.monotonic() + END_S
    while directory.exists() and time.monotonic() < until_s:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.1)


def _alive(lines: Iterable[str]) -> Iterable[psutil.Process]:
    for line in lines:
        pid, started = line.split()
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            # Another process may have the number by now.
            if process.create_time() == float(started):
                yield process


if __name__ == "__main__":
    end_ray(Path(sys.argv[1]), sys.stdin.readlines())
