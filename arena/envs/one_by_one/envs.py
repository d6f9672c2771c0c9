"""B environments stepped one after the other in this process, and how many faults are tolerated.

Tests: `tests/arena/envs/test_batched.py`, `tests/faults/test_environment_faults.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from arena.envs.base import Phase
from arena.envs.chance import episode_seed
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.pettingzoo.episode import Stepper
from arena.envs.pettingzoo.pending_decisions import DecisionFault
from arena.errors import ArenaError, EnvironmentFault, EnvironmentNotMade
from arena.users_code import message_of, pass_interrupt, raised

logger = logging.getLogger(__name__)

FREE_FAULTS = 16
EPISODES_PER_FAULT = 10
"""Faults tolerated since a reset: `FREE_FAULTS`, and one more per `EPISODES_PER_FAULT` episodes."""


class OneByOne:
    """Environments that step in this process, one after the other.

    Args:
        environment_id: Environment's id, for messages.
        buffers: Buffers that the steppers fill.
        steppers: One per environment.
        remake: Factory of a new environment b.
        faults: Faults since a reset. The episode of an environment that broke is void
            (`Turn.void`), and a new environment replaces it, until one is not tolerated.
        on_step: Callback before each environment's step, which may take long.
        on_tell: Callback with the phase of each environment's next episodes.
    """

    def __init__(
        self,
        environment_id: str,
        *,
        buffers: Buffers,
        steppers: Sequence[Stepper],
        remake: Callable[[int], Stepper],
        faults: Faults,
        on_step: Callable[[], object] | None,
        on_tell: Callable[[Sequence[Phase]], object],
    ) -> None:
        self._id = environment_id
        self._buffers = buffers
        self._steppers = list(steppers)
        self._remake = remake
        self._faults = faults
        self._on_step = on_step
        self._on_tell = on_tell
        self._num_envs = len(self._steppers)
        self._num_void = 0
        self._stage = 0
        self._seeds: tuple[int, ...] = ()
        self._episodes = [0] * self._num_envs
        self._halted = [False] * self._num_envs
        self._resumed: list[int] = []

    @property
    def num_played(self) -> int:
        """Episodes since the reset that were played to their ends."""
        return sum(self._episodes) - self._num_void

    def reset(self, seeds: Sequence[int]) -> None:
        """Start all environments, as `BatchedEnv.reset` does.

        Raises:
            EnvironmentFault: If an environment breaks its contract.
        """
        self._seeds = tuple(int(seed) for seed in seeds)
        self._episodes = [0] * self._num_envs
        self._halted = [False] * self._num_envs
        self._resumed = []
        self._num_void = 0
        self._stage = 0
        self._faults.clear()
        self._buffers.clear()
        for b in range(self._num_envs):
            self._start(b)
        self._write()
        # After `_write`, which may replace environments and thereby mark them void.
        self._buffers.all_are_new()

    def step(self, actions: Mapping[str, npt.NDArray[Any]]) -> None:
        """Carry out the pending decisions, as `BatchedEnv.step` does.

        Args:
            actions: Actions by population. int64 [B, S] or float32 [B, S, K].

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If an environment breaks its contract.
        """
        buffers = self._buffers
        # All actions are checked before any environment steps: an illegal one changes nothing.
        chosen = buffers.check(actions)
        # After the check, so that a refused call leaves the turn as it was.
        buffers.clear()
        # Before any episode ends: the results of this call are those of these episodes.
        buffers.episode[:] = self._episodes
        self._stage = 0
        for b, stepper in enumerate(self._steppers):
            if self._halted[b]:
                continue
            if self._on_step is not None:
                self._on_step()
            try:
                over = stepper.step(chosen)
            except BaseException as error:
                pass_interrupt(error)
                # The other environments go on; this one begins its next episode in the same call.
                self._replace(b, self._blame(error, stepper, doing="step"))
                continue
            if over:
                self._episodes[b] += 1
                # At once: the turn has the end of the old episode and the first decision of the new
                # one.
                self._start(b)
        self._stage = 1
        # After the loop: their first decision is made in this call, their first step in the next.
        # The episode number is that of the halt, and so is the seed.
        for b in self._resumed:
            self._halted[b] = False
            self._start(b)
        self._resumed = []
        self._write()

    def halt(self, environments: Sequence[int]) -> None:
        """Halt environments until they are resumed, as `BatchedEnv.halt` does."""
        self._buffers.forget(environments)
        for b in environments:
            self._halted[b] = True

    def resume(self, environments: Sequence[int]) -> None:
        """Let halted environments begin in the next call of ``step``, as `BatchedEnv.resume`."""
        self._resumed += environments

    def tell(self, phases: Sequence[Phase]) -> None:
        """Take the phase of each environment's episodes from the next one on. Length B."""
        self._on_tell(phases)

    def close(self) -> None:
        """Release everything that the environments hold.

        Raises:
            EnvironmentFault: If one of them raises; all are closed before.
        """
        faults = []
        for stepper in self._steppers:
            try:
                stepper.close()
            except BaseException as error:
                pass_interrupt(error)
                # All are closed, even if one of them raises.
                faults.append(self._blame(error, stepper, doing="close"))
        if faults:
            raise faults[0]

    def _write(self) -> None:
        """Write the pending decisions; environments with invalid ones are replaced first."""
        self._stage = 2
        # A replacement's first decision may be invalid too; `_bear` bounds the loop.
        while True:
            try:
                return self._buffers.write()
            except DecisionFault as fault:
                self._replace(fault.environment, fault)

    def _start(self, b: int) -> None:
        """Begin an episode."""
        fault = self._try_to_start(b)
        if fault is not None:
            self._replace(b, fault)

    def _try_to_start(self, b: int) -> EnvironmentFault | None:
        stepper = self._steppers[b]
        seed = episode_seed(self._seeds[b], episode=self._episodes[b])
        try:
            stepper.start(seed)
        except BaseException as error:
            pass_interrupt(error)
            return self._blame(error, stepper, doing="reset")
        return None

    def _replace(self, b: int, fault: EnvironmentFault | None) -> None:
        """Void the episode of an environment that broke; begin the next one in a new environment.

        Raises:
            EnvironmentFault: If faults are not tolerated, or too many environments broke.
        """
        while fault is not None:
            self._bear(fault)
            # First: a new start adds decisions, which must not be dropped with the old ones.
            self._buffers.void(b)
            try:
                self._steppers[b].close()
            except BaseException as error:
                pass_interrupt(error)
                # It is broken anyway; the fault that counts is on its way.
                logger.warning("a broken environment does not close either", exc_info=True)
            try:
                self._steppers[b] = self._remake(b)
            except BaseException as error:
                pass_interrupt(error)
                # Without an environment there is nothing to go on with.
                raise EnvironmentNotMade(
                    f"environment {self._id} cannot be made anew: {message_of(error)}"
                ) from error
            self._episodes[b] += 1
            fault = self._try_to_start(b)

    def _bear(self, fault: EnvironmentFault) -> None:
        # `_replace` advanced the episode number once for each earlier fault: those were not played.
        self._faults.bear(fault, stage=self._stage, num_played=self.num_played)
        self._num_void += 1

    def _blame(self, error: BaseException, stepper: Stepper, *, doing: str) -> EnvironmentFault:
        """Attribute an error: an environment is a user's code and may raise anything."""
        # Our own errors are not the environment's fault and must not be tolerated as one.
        if isinstance(error, ArenaError) and not isinstance(error, EnvironmentFault):
            raise error
        if isinstance(error, EnvironmentFault):
            fault = EnvironmentFault(f"environment {self._id} in {doing}: {error}")
        else:
            what = f"environment {self._id} in {doing}, {stepper.on_turn},"
            fault = EnvironmentFault(raised(what, error))
        # By hand, as the fault is returned and perhaps never raised.
        fault.__cause__ = error
        return fault


class Faults(Protocol):
    """Faults since a reset."""

    def clear(self) -> None:
        """Begin anew."""

    def bear(self, fault: EnvironmentFault, *, stage: int, num_played: int) -> None:
        """Count a fault, after which its environment is made anew.

        Args:
            fault: The fault.
            stage: Part of a call, counted from 0: every environment in the order of the batch, then
                those that are resumed, then the decisions of all.
            num_played: Episodes since the reset that these environments have played to their ends.

        Raises:
            EnvironmentFault: If it is not tolerated.
        """


class ToleratedFaults:
    """Faults of which some are tolerated.

    Args:
        on_fault: Callback with each one that is. None: none is.

    Attributes:
        number: Faults since the reset.
    """

    def __init__(self, on_fault: Callable[[EnvironmentFault], None] | None) -> None:
        self._on_fault = on_fault
        self.number = 0

    def clear(self) -> None:
        """Begin anew."""
        self.number = 0

    def bear(self, fault: EnvironmentFault, *, stage: int, num_played: int) -> None:
        """Count a fault.

        Raises:
            EnvironmentFault: If it is one too many.
        """
        if self._on_fault is None:
            raise fault
        self.number += 1
        if self.number > most_faults(num_played):
            raise EnvironmentFault(
                f"{self.number} episodes were void beside {num_played} that were played to their "
                f"ends; the last: {fault}"
            ) from fault
        self._on_fault(fault)

    def most_more(self, num_played: int) -> int:
        """Return how many faults more are tolerated if so many episodes have been played."""
        return 0 if self._on_fault is None else most_faults(num_played) - self.number


def most_faults(num_played: int) -> int:
    """Return how many faults are tolerated beside so many episodes."""
    return FREE_FAULTS + num_played // EPISODES_PER_FAULT
