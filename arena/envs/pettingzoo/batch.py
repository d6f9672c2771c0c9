"""B PettingZoo environments stepped as one, with turns or simultaneous decisions.

Tests: `tests/arena/envs/test_batched.py`, `tests/faults/test_environment_faults.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from arena.envs.base import Phase, Turn
from arena.envs.chance import episode_seed
from arena.envs.pettingzoo.buffers import NO_DECISION, Buffers
from arena.envs.pettingzoo.pending_decisions import DecisionFault
from arena.errors import ArenaError, EnvironmentFault
from arena.users_code import own_lines

logger = logging.getLogger(__name__)

MAX_SEED = 2**63

FREE_FAULTS = 16
EPISODES_PER_FAULT = 10
"""Faults tolerated since a reset: `FREE_FAULTS`, and one more per `EPISODES_PER_FAULT` episodes."""


class Stepper(Protocol):
    """One environment that fills its row of the buffers."""

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""

    def start(self, seed: int) -> None:
        """Reset, and set the first pending decisions."""

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Carry out the pending decisions; True if the episode is over.

        Args:
            actions: Actions of the whole batch by population, in the environment's own form, [B *
                S].
        """

    def close(self) -> None:
        """Release everything that the environment holds."""


class PettingZooBatch:
    """`BatchedEnv` that steps PettingZoo environments one by one.

    Args:
        environment_id: Environment's id, for messages.
        buffers: Buffers that the steppers fill.
        steppers: One per environment.
        remake: Factory of a new environment b.
        on_fault: Callback for each environment that broke. Its episode is void (`Turn.void`) and a
            new environment replaces it, until too many have broken. None: the first fault is
            raised.
        on_step: Callback before each environment's step, which may take long.
        on_tell: Callback with the phase of each environment's next episodes. None: no environment
            wants to know.
    """

    def __init__(
        self,
        environment_id: str,
        *,
        buffers: Buffers,
        steppers: Sequence[Stepper],
        remake: Callable[[int], Stepper],
        on_fault: Callable[[EnvironmentFault], None] | None = None,
        on_step: Callable[[], object] | None = None,
        on_tell: Callable[[Sequence[Phase]], object] | None = None,
    ) -> None:
        self._id = environment_id
        self._buffers = buffers
        self._steppers = list(steppers)
        self._remake = remake
        self._on_fault = on_fault
        self._on_step = on_step
        self._on_tell = on_tell
        self._num_faults = 0
        self._seeds: tuple[int, ...] = ()
        self._episodes = [0] * len(self._steppers)
        self._halted = [False] * len(self._steppers)
        self._resumed: list[int] = []

    @property
    def num_envs(self) -> int:
        """B."""
        return len(self._steppers)

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        return self._buffers.agents

    def reset(self, seeds: Sequence[int]) -> Turn:
        """Start all environments: (seeds[b], k) alone seeds episode k of environment b.

        Raises:
            ValueError: If there is not one seed in [0, 2**63) for each environment.
            EnvironmentFault: If an environment breaks its contract.
        """
        check_seeds(seeds, num_envs=self.num_envs)
        self._seeds = tuple(int(seed) for seed in seeds)
        self._episodes = [0] * self.num_envs
        self._halted = [False] * self.num_envs
        self._resumed = []
        self._num_faults = 0
        self._buffers.clear()
        for b in range(self.num_envs):
            self._start(b)
        turn = self._turn()
        # After `_turn`, which may replace environments and thereby mark them void.
        self._buffers.all_are_new()
        return turn

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Carry out the pending decisions.

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If an environment breaks its contract.
        """
        if not self._seeds:
            raise RuntimeError("step needs a reset first")
        buffers = self._buffers
        # All actions are checked before any environment steps: an illegal one changes nothing.
        chosen = {
            name: population.check(name, actions[name])
            for name, population in buffers.populations.items()
        }
        # After the check, so that a refused call leaves the turn as it was.
        buffers.clear()
        # Before any episode ends: the results of this call are those of these episodes.
        buffers.episode[:] = self._episodes
        for b, stepper in enumerate(self._steppers):
            if self._halted[b]:
                continue
            if self._on_step is not None:
                self._on_step()
            try:
                over = stepper.step(chosen)
            except Exception as error:
                # The other environments go on; this one begins its next episode in the same call.
                self._replace(b, self._blame(error, stepper, doing="step"))
                continue
            if over:
                self._episodes[b] += 1
                # At once: the turn has the end of the old episode and the first decision of the new
                # one.
                self._start(b)
        # After the loop: their first decision is made in this call, their first step in the next.
        # The episode number is that of the halt, and so is the seed.
        for b in self._resumed:
            self._halted[b] = False
            self._start(b)
        self._resumed = []
        return self._turn()

    def halt(self, environments: torch.Tensor) -> None:
        """Halt environments until they are resumed; they have no pending decisions meanwhile.

        Args:
            environments: Environments to halt. bool [B].
        """
        for b in environments.nonzero().flatten().tolist():
            self._halted[b] = True
            for population in self._buffers.populations.values():
                # The decisions of the last turn are written already; they only stop to count.
                population.agent_index[b] = NO_DECISION

    def resume(self, environments: torch.Tensor) -> None:
        """Let halted environments begin their episode in the next call of ``step``.

        Args:
            environments: Environments to resume. bool [B].
        """
        self._resumed += environments.nonzero().flatten().tolist()

    def tell(self, phases: Sequence[Phase]) -> None:
        """Take the phase of each environment's episodes from the next one on. Length B."""
        if self._on_tell is not None:
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
            except Exception as error:
                # All are closed, even if one of them raises.
                faults.append(self._blame(error, stepper, doing="close"))
        if faults:
            raise faults[0]

    def _turn(self) -> Turn:
        """Return the turn; environments with invalid decisions are replaced first."""
        # A replacement's first decision may be invalid too; `_allow` bounds the loop.
        while True:
            try:
                return self._buffers.turn()
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
        except Exception as error:
            return self._blame(error, stepper, doing="reset")
        return None

    def _replace(self, b: int, fault: EnvironmentFault | None) -> None:
        """Void the episode of an environment that broke; begin the next one in a new environment.

        Raises:
            EnvironmentFault: If faults are not tolerated, or too many environments broke.
        """
        while fault is not None:
            self._allow(fault)
            # First: a new start adds decisions, which must not be dropped with the old ones.
            self._buffers.void(b)
            try:
                self._steppers[b].close()
            except Exception:
                # It is broken anyway; the fault that counts is on its way.
                logger.warning("a broken environment does not close either", exc_info=True)
            try:
                self._steppers[b] = self._remake(b)
            except Exception as error:
                # Without an environment there is nothing to go on with.
                fault = self._blame(error, self._steppers[b], doing="making it anew")
                raise fault from error
            self._episodes[b] += 1
            fault = self._try_to_start(b)

    def _allow(self, fault: EnvironmentFault) -> None:
        """Count a fault.

        Raises:
            EnvironmentFault: If it is one too many.
        """
        if self._on_fault is None:
            raise fault
        self._num_faults += 1
        # `_replace` advanced the episode number once for each earlier fault: those were not played.
        num_played = sum(self._episodes) - (self._num_faults - 1)
        if self._num_faults > FREE_FAULTS + num_played // EPISODES_PER_FAULT:
            raise EnvironmentFault(
                f"{self._num_faults} episodes were void beside {num_played} that were played to "
                f"their ends; the last: {fault}"
            ) from fault
        self._on_fault(fault)

    def _blame(self, error: Exception, stepper: Stepper, *, doing: str) -> EnvironmentFault:
        """Attribute an error: an environment is a user's code and may raise anything."""
        # Our own errors are not the environment's fault and must not be tolerated as one.
        if isinstance(error, ArenaError) and not isinstance(error, EnvironmentFault):
            raise error
        if isinstance(error, EnvironmentFault):
            fault = EnvironmentFault(f"environment {self._id} in {doing}: {error}")
        else:
            fault = EnvironmentFault(
                f"environment {self._id} raised {type(error).__name__} in {doing}, "
                f"{stepper.on_turn}: {error}{own_lines(error)}"
            )
        # By hand, as the fault is returned and perhaps never raised.
        fault.__cause__ = error
        return fault


def check_seeds(seeds: Sequence[int], *, num_envs: int) -> None:
    """Check for one seed in [0, 2**63) for each environment.

    Raises:
        ValueError: If the check fails.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"{num_envs} environments need as many seeds, got {len(seeds)}")
    for seed in seeds:
        if not 0 <= seed < MAX_SEED:
            raise ValueError(f"a seed must be in [0, 2**63), got {seed}")
