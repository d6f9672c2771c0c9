"""Environments that step in worker processes and fill rows in shared memory.

Results equal those of `OneByOne` bit for bit: each worker steps its share in the same way, and the
faults and metrics of all shares are counted here in the order of the batch.

Shapes: B environments.

Tests: `tests/arena/envs/workers/test_worker_envs.py`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy.typing as npt

from arena.envs.base import Phase
from arena.envs.one_by_one.envs import ToleratedFaults
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.workers.crew import Crew
from arena.envs.workers.messages import (
    Answer,
    Close,
    Command,
    Error,
    Make,
    Play,
)
from arena.envs.workers.shared_arrays import SharedArrays, anonymous_memory
from arena.envs.workers.shares import shared_rows, shares_of
from arena.errors import (
    ConfigError,
    EnvironmentFault,
    EnvironmentNotMade,
    EnvWorkersLost,
    MachineExhausted,
)

Waiting = Callable[[], object]


class EnvWorkers:
    """The processes of a learner that step its environments, started when first needed.

    Args:
        number: Number of processes.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._crew: Crew | None = None
        self._numbers = count()

    def make(
        self,
        request: EnvsRequest,
        *,
        on_fault: Callable[[EnvironmentFault], None] | None,
        on_step: Callable[[], object] | None,
    ) -> WorkerEnvs:
        """Make B environments, as equally divided as possible.

        Args:
            request: The environments.
            on_fault: Callback for each tolerated fault. None: no fault is tolerated.
            on_step: Callback for each environment's step.

        Raises:
            ConfigError: If an environment cannot be made or differs from its spec.
            EnvironmentFault: If a process ends.
        """
        if self._crew is None or self._crew.is_lost:
            self._crew = Crew(self.number)
        return WorkerEnvs(
            self._crew,
            request,
            batch=next(self._numbers),
            faults=ToleratedFaults(on_fault),
            on_step=on_step,
        )

    def resident_bytes(self) -> int:
        """Return the memory of the processes, in bytes."""
        return 0 if self._crew is None or self._crew.is_lost else self._crew.resident_bytes()

    def close(self) -> None:
        """End the processes."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None


class WorkerEnvs:
    """Environments of one batch; those of a worker are contiguous, in the order of the batch.

    Args:
        crew: Processes that step them.
        request: The environments.
        batch: Number of the batch, unique among these processes.
        faults: Faults since a reset.
        on_step: Callback for each environment's step.

    Attributes:
        buffers: Buffers that the environments fill.
    """

    def __init__(
        self,
        crew: Crew,
        request: EnvsRequest,
        *,
        batch: int,
        faults: ToleratedFaults,
        on_step: Callable[[], object] | None,
    ) -> None:
        self._crew = crew
        self._id = request.spec.id
        self._batch = batch
        self._faults = faults
        self._on_step = on_step
        self._num_told = 0
        # The phases that the environments have, and those that they are to get.
        self._told: Sequence[Phase | None] = [None] * request.num_envs
        self._phases: Sequence[Phase | None] = self._told
        self._shares = shares_of(request.num_envs, num_workers=len(crew.pids))
        self._played = [0] * len(self._shares)
        self._halted: list[int] = []
        self._resumed: list[int] = []
        measured = SharedArrays(None, num_envs=request.num_envs)
        shared_rows(request, measured)
        with anonymous_memory(measured.num_bytes) as fd:
            memory = mmap.mmap(fd, measured.num_bytes)
            shared = shared_rows(request, SharedArrays(memory, num_envs=request.num_envs))
            self.buffers = shared.buffers
            self._actions, self._num_steps = shared.actions, shared.num_steps
            self._make(request, fd)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start all environments, as `BatchedEnv.reset` does.

        Raises:
            EnvironmentFault: If an environment breaks its contract, or a worker ends.
        """
        self._faults.clear()
        self._played = [0] * len(self._shares)
        self._play(seeds, doing="reset")

    def step(self, actions: Mapping[str, npt.NDArray[Any]]) -> None:
        """Carry out the pending decisions, as `BatchedEnv.step` does.

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If an environment breaks its contract, or a worker ends.
        """
        # Actions are checked here for all shares, so that an illegal one changes nothing anywhere.
        self.buffers.check(actions)
        for name, chosen in self._actions.items():
            chosen[:] = actions[name]
        self._play(None, doing="step")

    def halt(self, environments: Sequence[int]) -> None:
        """Halt environments until they are resumed, as `BatchedEnv.halt` does."""
        # Workers write nothing between two calls, so the buffers may be changed here.
        self.buffers.forget(environments)
        self._halted += environments

    def resume(self, environments: Sequence[int]) -> None:
        """Let halted environments begin in the next call of ``step``, as `BatchedEnv.resume`."""
        self._resumed += environments

    def tell(self, phases: Sequence[Phase]) -> None:
        """Set the phase of each environment's episodes from the next one on. Length B."""
        self._phases = tuple(phases)

    def close(self) -> None:
        """Release everything that the environments hold.

        Raises:
            EnvironmentFault: If one of them raises; all are closed before.
        """
        # The environments ended with their processes.
        if self._crew.is_lost:
            return
        answers = self._crew.ask([Close(batch=self._batch)] * len(self._shares))
        self._raise_first(answers)

    @property
    def _max_faults(self) -> int:
        """Faults that one share may have in a call, if the others have none.

        Each environment ends at most one episode in a call.
        """
        return self._faults.most_more(sum(self._played) + self.buffers.num_envs)

    def _make(self, request: EnvsRequest, fd: int) -> None:
        commands = [
            Make(
                batch=self._batch,
                request=replace(request, num_envs=len(share)),
                first=share.start,
                num_envs=request.num_envs,
            )
            for share in self._shares
        ]
        answers = self._ask(commands, fd=fd, doing="making it")
        try:
            self._raise_first(answers)
        except Exception:
            self._crew.ask([Close(batch=self._batch)] * len(self._shares))
            raise

    def _take_news(self) -> list[Phase | None]:
        """Return the phases that the environments have not got yet; empty: there are none."""
        if self._phases is self._told:
            return []
        # A phase is sent once; it is recognized by identity, which a copy does not have.
        news = [
            None if new is old else new for new, old in zip(self._phases, self._told, strict=True)
        ]
        self._told = self._phases
        return news

    def _play(self, seeds: Sequence[int] | None, *, doing: str) -> None:
        buffers = self.buffers
        news = self._take_news()
        commands = [
            Play(
                batch=self._batch,
                max_faults=self._max_faults,
                halted=tuple(b - share.start for b in self._halted if b in share),
                resumed=tuple(b - share.start for b in self._resumed if b in share),
                phases=tuple(news[share.start : share.stop]),
                seeds=None if seeds is None else tuple(int(seeds[b]) for b in share),
            )
            for share in self._shares
        ]
        self._halted, self._resumed = [], []
        answers = self._ask(commands, doing=doing)
        buffers.has_void = any(answer.has_void for answer in answers)
        buffers.figures.reports[:] = [
            replace(one, environment=share.start + one.environment)
            for share, answer in zip(self._shares, answers, strict=True)
            for one in answer.figures
        ]
        self._bear_faults(answers)
        self._played = [answer.num_played for answer in answers]
        self._raise_first(answers)

    def _ask(
        self, commands: Sequence[Command], *, doing: str, fd: int | None = None
    ) -> list[Answer]:
        try:
            return self._crew.ask(commands, fd=fd, waiting=self._tell_steps)
        except EnvWorkersLost as lost:
            raise EnvWorkersLost(f"environment {self._id} in {doing}: {lost}") from None

    def _tell_steps(self) -> None:
        """Call back once for each step that an environment has begun."""
        if self._on_step is None:
            return
        num_steps = int(self._num_steps.sum())
        while self._num_told < num_steps:
            self._num_told += 1
            self._on_step()

    def _bear_faults(self, answers: Sequence[Answer]) -> None:
        """Count the faults of all shares as if one process had found them in order.

        Raises:
            EnvironmentFault: If one is not tolerated.
        """
        # Within a stage, faults are sorted by share, then in the order of their discovery.
        found = sorted(
            (fault.stage, worker, at)
            for worker, answer in enumerate(answers)
            for at, fault in enumerate(answer.faults)
        )
        after = [answer.num_played for answer in answers]
        for stage, worker, at in found:
            fault = answers[worker].faults[at]
            # In stage 0 the shares after this one have not stepped yet.
            behind = self._played if stage == 0 else after
            num_played = sum(after[:worker]) + fault.num_played + sum(behind[worker + 1 :])
            raised = _exception(fault)
            assert isinstance(raised, EnvironmentFault), "an environment raises nothing else"
            self._faults.bear(raised, stage=stage, num_played=num_played)

    @staticmethod
    def _raise_first(answers: Sequence[Answer]) -> None:
        """Raise the first error of the shares, if there is one."""
        for answer in answers:
            if answer.error is not None:
                raise _exception(answer.error)


class WorkerTraceback(Exception):
    """Traceback of an error in a worker, as text."""


def _exception(error: Error) -> Exception:
    kinds: Mapping[str, type[Exception]] = {
        "environment": EnvironmentFault,
        "making": EnvironmentNotMade,
        "exhaustion": MachineExhausted,
        "config": ConfigError,
        "other": RuntimeError,
    }
    raised = kinds[error.kind](error.text)
    raised.__cause__ = WorkerTraceback(f"\n{error.traceback}")
    return raised
