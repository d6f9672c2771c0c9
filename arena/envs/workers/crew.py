"""Processes that step environments, seen from their owner.

Tests: `tests/arena/envs/workers/test_crew.py`.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Sequence

import psutil

from arena.envs.workers.messages import Answer, Channel, Command
from arena.errors import DecodeError, EnvWorkersLost
from arena.processes.helper import Helper

MODULE = "arena.envs.workers.process"

WAIT_S = 1.0
"""Longest time between two checks of the workers' progress."""


class Crew:
    """Workers that are started together and end together. Owned by one thread, which starts them.

    Args:
        number: Number of processes.
    """

    def __init__(self, number: int) -> None:
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._lost = ""
        try:
            for index in range(number):
                self._workers.append(_Worker(index + 1))
                self._selector.register(
                    self._workers[index].channel, selectors.EVENT_READ, data=index
                )
        except BaseException:
            self.kill("they could not be started")
            raise

    @property
    def is_lost(self) -> bool:
        """Return whether the processes have ended, and their environments are lost."""
        return bool(self._lost)

    @property
    def pids(self) -> list[int]:
        """Process ids."""
        return [worker.pid for worker in self._workers]

    def resident_bytes(self) -> int:
        """Return the memory of the processes, in bytes."""
        found = 0
        for pid in self.pids:
            # The process may just have ended.
            with contextlib.suppress(psutil.Error):
                found += int(psutil.Process(pid).memory_info().rss)
        return found

    def ask(
        self,
        commands: Sequence[Command],
        *,
        fd: int | None = None,
        waiting: Callable[[], object] = lambda: None,
    ) -> list[Answer]:
        """Send each worker a command, and wait for all answers.

        Args:
            commands: One for each worker.
            fd: File descriptor that each worker gets.
            waiting: Callback after every answer, and at intervals before.

        Raises:
            EnvWorkersLost: If a worker has ended, now or before.
        """
        if self._lost:
            raise EnvWorkersLost(self._lost)
        at = 0
        try:
            for at, command in enumerate(commands):
                self._workers[at].channel.send(command, fd=fd)
            answers: dict[int, Answer] = {}
            while len(answers) < len(self._workers):
                for key, _ in self._selector.select(WAIT_S):
                    at = key.data
                    answers[at], _ = self._workers[at].channel.receive()
                waiting()
        except (EOFError, OSError, DecodeError):
            self.kill(self._reason(at))
            raise EnvWorkersLost(self._lost) from None
        except BaseException:
            # An answer may still arrive, and the next call would take it for its own.
            self.kill("the call before was interrupted")
            raise
        return [answers[index] for index in range(len(self._workers))]

    def close(self) -> None:
        """End the processes; they close their environments first."""
        for worker in self._workers:
            worker.channel.close()
        for worker in self._workers:
            worker.close()
        self.kill("they were closed")

    def kill(self, reason: str) -> None:
        """Kill the processes."""
        self._lost = self._lost or reason
        self._selector.close()
        for worker in self._workers:
            worker.kill_group()

    def _reason(self, index: int) -> str:
        """Return how a worker ended, in words."""
        return (
            f"process {index + 1} of {len(self._workers)} that step environments "
            f"(environment.num_env_workers) {self._workers[index].how_it_ended()}"
        )


class _Worker(Helper):
    """One process and its connection."""

    def __init__(self, number: int) -> None:
        super().__init__(MODULE, "--number", str(number))
        self.channel = Channel(self.socket)
