"""Launcher of learners as processes on this machine, one per slot.

Tests: `tests/contracts/test_launchers.py`, `tests/faults/test_stuck_learners.py`.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from arena.learners.spawn import spawn_learner
from arena.processes.parent import Child
from arena.wire.keys import holder_of, key_path
from arena.wire.messages import Hello

STACKS_S = 2.0
"""Time that a process gets to write its stacks; a responsive one needs milliseconds."""


def slot_name(slot: int) -> str:
    """Return the name of a slot's log and key."""
    return f"learner-{slot}"


class LocalLauncher:
    """Launcher of learner processes. Owned by one thread."""

    def __init__(
        self,
        *,
        setup_path: Path,
        endpoint: str,
        logs: Path,
        devices: Sequence[str],
        nice: int = 0,
        keys: Path | None = None,
    ) -> None:
        """Store the arguments; no process is started.

        Args:
            setup_path: File with a LearnerSetup as JSON.
            endpoint: Address that learners connect to.
            logs: Directory for logs of the learners.
            devices: Devices, assigned to the slots in turn; at least one.
            nice: Increase of the learners' nice value, 0 to 19.
            keys: Directory with each slot's key; None: the controller uses no keys.
        """
        self._setup_path = setup_path
        self._endpoint = endpoint
        self._logs = logs
        self._devices = tuple(devices)
        self._nice = nice
        self._keys = keys
        self._processes: dict[int, Child] = {}
        self._dying: list[tuple[Child, float]] = []

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start a process in a slot, after killing its predecessor there."""
        self.kill(slot)
        self._processes[slot] = spawn_learner(
            self._setup_path,
            self._endpoint,
            populations=populations,
            # The device depends on the slot, so a restarted learner gets the same one.
            device=self._devices[slot % len(self._devices)],
            log_path=self._logs / f"{slot_name(slot)}.log",
            nice=self._nice,
            keys=None if self._keys is None else key_path(self._keys, slot_name(slot)),
        )

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """End a slot's process and its descendants: at once, or after the time to write stacks."""
        # The process is removed here, so that `exited` does not report it.
        process = self._processes.pop(slot, None)
        if process is None:
            return
        if dump_stacks:
            process.dump_stacks()
            # `exited` kills the process later: the controller must not block on the stacks.
            self._dying.append((process, time.monotonic() + STACKS_S))
        else:
            process.kill_group()

    def slot_of(self, hello: Hello) -> int | None:
        """Return the slot of a learner, by its process id, and by its key if keys are used."""
        # A process id is only unique on one machine.
        if hello.host != socket.gethostname():
            return None
        # `known_pid` does not wait for processes that are still being started; the learner that
        # sent the Hello is not one of them.
        pids = {process.known_pid: slot for slot, process in self._processes.items()}
        slot = pids.get(hello.pid)
        # A learner could send a false process id, but it cannot use another slot's key.
        is_ours = self._keys is None or (
            slot is not None and holder_of(hello.learner) == slot_name(slot)
        )
        return slot if is_ours else None

    def waiting(self) -> Collection[int]:
        """Return no slot, because processes on this machine start at once."""
        return ()

    def exited(self) -> list[tuple[int, int | None]]:
        """Return slots whose process has ended since the last call, with exit codes (-n: signal n).

        It also kills processes whose time for writing stacks is over.
        """
        self._end_dying(now_s=time.monotonic())
        ended: list[tuple[int, int | None]] = [
            (slot, code)
            for slot, process in self._processes.items()
            if (code := process.poll()) is not None
        ]
        for slot, _ in ended:
            del self._processes[slot]
        return ended

    def close(self) -> None:
        """Kill all remaining processes."""
        # The list is a copy, because `kill` removes entries.
        for slot in list(self._processes):
            self.kill(slot)
        self._end_dying(now_s=math.inf)

    def _end_dying(self, *, now_s: float) -> None:
        """Kill processes whose time for writing stacks is over."""
        for process, until_s in self._dying:
            if now_s >= until_s:
                process.kill_group()
        self._dying = [(process, until_s) for process, until_s in self._dying if now_s < until_s]
