"""Growth of memory and open files of a run's processes while they live."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import numpy as np
import psutil

from experiments.faults.killing import KilledRun, controller_of, helpers_of, processes_of

EVERY_S = 0.5
WARM_S = 8.0
"""Age in seconds from which on growth counts: before, a process imports and fills its caches."""

MIN_SAMPLES = 4
Role = Literal["controller", "learner", "helper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Growth within the lives of processes, from `WARM_S` on: least squares, a level for each.

    Attributes:
        lives: Processes that lived long enough.
        seconds: Seconds of their lives, together.
        memory_bytes_per_s: Resident.
        descriptors_per_s: Open files, sockets and pipes.
        most_memory_bytes: Most memory of any process.
        most_descriptors: Most descriptors of any process.
    """

    lives: int
    seconds: float
    memory_bytes_per_s: float
    descriptors_per_s: float
    most_memory_bytes: int
    most_descriptors: int


class Leaks:
    """A thread that looks at a run's processes twice a second."""

    def __init__(self, run: KilledRun) -> None:
        self._run = run
        self._samples: dict[tuple[Role, int, float], list[tuple[float, int, int]]] = defaultdict(
            list
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="leaks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Look no longer."""
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        now_s = 0.0
        while not self._is_over.wait(EVERY_S):
            now_s += EVERY_S
            process = self._run.process
            if process is None:
                continue
            try:
                controller = controller_of(process.pid)
                learners = processes_of(self._run.run)
                helpers = helpers_of(self._run.run)
            except psutil.Error:
                continue  # the process was killed
            self._sample("controller", controller, now_s)
            for learner in learners:
                self._sample("learner", learner, now_s)
            for helper in helpers:
                self._sample("helper", helper, now_s)

    def _sample(self, role: Role, process: psutil.Process, now_s: float) -> None:
        try:
            with process.oneshot():
                key = (role, process.pid, process.create_time())
                sample = (now_s, process.memory_info().rss, process.num_fds())
        except psutil.Error:
            return  # the process was killed
        self._samples[key].append(sample)

    def slopes(self) -> dict[str, Slope]:
        """Return the growth by role."""
        roles: tuple[Role, ...] = ("controller", "learner", "helper")
        return {role: self._slope(role) for role in roles}

    def _slope(self, role: Role) -> Slope:
        lives = []
        for (kind, _, _), samples in self._samples.items():
            table = np.array(samples, dtype=np.float64)
            warm = table[table[:, 0] >= table[0, 0] + WARM_S]
            if kind == role and len(warm) >= MIN_SAMPLES:
                lives.append(warm)
        everything = [
            sample for key, found in self._samples.items() if key[0] == role for sample in found
        ]
        centred = np.concatenate([life - life.mean(axis=0) for life in lives] or [np.zeros((1, 3))])
        variance = float((centred[:, 0] ** 2).sum())
        growth = centred[:, 1:].T @ centred[:, 0] / variance if variance else np.zeros(2)
        return Slope(
            lives=len(lives),
            seconds=float(sum(life[-1, 0] - life[0, 0] for life in lives)),
            memory_bytes_per_s=round(float(growth[0]), 1),
            descriptors_per_s=round(float(growth[1]), 4),
            most_memory_bytes=max((sample[1] for sample in everything), default=0),
            most_descriptors=max((sample[2] for sample in everything), default=0),
        )
