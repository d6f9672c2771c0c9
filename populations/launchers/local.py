"""Learners as processes on this machine, one per slot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from arena.learners.spawn import LearnerProcess, spawn_learner


class LocalLauncher:
    """Starts, watches and ends learner processes. Use it from the main thread only.

    (A child asks the kernel to be killed with its parent, and the kernel takes the spawning thread
    for the parent.)
    """

    def __init__(self, *, setup_path: Path, endpoint: str, logs: Path) -> None:
        self._setup_path = setup_path
        self._endpoint = endpoint
        self._logs = logs
        self._processes: dict[int, LearnerProcess] = {}

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start a process in a slot; what ran there before is killed."""
        self.kill(slot)
        self._processes[slot] = spawn_learner(
            self._setup_path,
            self._endpoint,
            populations=populations,
            log_path=self._logs / f"learner-{slot}.log",
        )

    def kill(self, slot: int) -> None:
        """End a slot's process group at once."""
        process = self._processes.pop(slot, None)
        if process is not None:
            process.kill()

    def running(self) -> Mapping[int, int]:
        """Process ids by slot."""
        return {slot: process.pid for slot, process in self._processes.items()}

    def exited(self) -> list[tuple[int, int]]:
        """Slots whose process has ended since the last call, with exit codes (-n: by signal n)."""
        ended = [
            (slot, code)
            for slot, process in self._processes.items()
            if (code := process.poll()) is not None
        ]
        for slot, _ in ended:
            self._processes.pop(slot).kill()
        return ended

    def close(self) -> None:
        """Kill what is left."""
        for slot in list(self._processes):
            self.kill(slot)
