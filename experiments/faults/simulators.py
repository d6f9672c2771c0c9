"""Connect Four whose environments start simulators of three sorts.

Each environment starts a child, a leader of a session of its own and a daemon (a child of a child
that has ended), none of which notices that its parent is gone; `close` ends them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import psutil

VARIABLE = "ARENA_SIMULATORS"
"""Environment variable whose value the simulators of one run have in common."""

COMMAND = ("sleep", "100000")


def simulators(of: str) -> list[psutil.Process]:
    """Return the simulators that run, of one value of `VARIABLE`; empty: none."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter() if of else ():
        try:
            if process.cmdline() == [*COMMAND] and process.environ().get(VARIABLE) == of:
                found.append(process)
        # The process has just ended, or belongs to another user.
        except psutil.Error:
            continue
    return found


def start_simulators() -> list[int]:
    """Start one of each sort, and return their process ids."""
    plain = subprocess.Popen(COMMAND)
    session = subprocess.Popen(COMMAND, start_new_session=True)
    script = f"setsid {' '.join(COMMAND)} >/dev/null 2>&1 & echo $!"
    daemon = subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE)
    return [plain.pid, session.pid, int(daemon.stdout)]


def connect_four(**kwargs: object) -> Any:
    """Make the game with its simulators."""
    # The import is local, because processes that only count simulators do not need it.
    from pettingzoo.classic import connect_four_v3
    from pettingzoo.utils.wrappers import BaseWrapper

    class Simulated(BaseWrapper):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(connect_four_v3.env(**kwargs))
            self._pids = start_simulators()

        def close(self) -> None:
            for pid in self._pids:
                os.kill(pid, signal.SIGKILL)
            self._pids = []
            super().close()

    return Simulated()
