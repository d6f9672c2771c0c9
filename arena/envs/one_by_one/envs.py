"""B environments stepped one after the other in this process, and the limit of tolerated faults.

Tests: `tests/arena/envs/test_batched.py`, `tests/faults/test_environment_faults.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from arena.envs.base import Phase
from arena.envs.chance import episode_seed
from arena.envs.pettingzoo.buffers import Buffers, States
from arena.envs.pettingzoo.episode import Stepper
from arena.envs.pettingzoo.pending_decisions import DecisionFault
from arena.envs.pettingzoo.states import state_reader
from arena.errors import ArenaError, EnvironmentFault, EnvironmentNotMade
from arena.users_code import message_of, pass_interrupt, raised

logger = logging.getLogger(__name__)

FREE_FAULTS = 16
EPISODES_PER_FAULT = 10
"""Faults tolerated since a reset: `FREE_FAULTS`, and one more per `EPISODES_PER_FAULT` episodes."""

SetPhase = Callable[[str, int | None, dict[str, str]], object]

MAX_WRAPPERS = 64
"""Most wrappers to look through, so that the search ends even if one contains itself."""


class OneByOne:
    """Environments that step in this process, one after the other.

    Environments with a method ``set_phase`` get their phase before their episodes. If states are
    allocated, they are read after every call.

    Args:
        environment_id: Environment's id, for messages.
        buffers: Buffers that the steppers fill.
        num_envs: B.
        make: Factory of environment b: its stepper, and the environment with all its wrappers.
        faults: Faults since a reset. While they are tolerated, the episode of a broken environment
            is void (`Turn.void`), and a new environment replaces it.
        on_step: Callback before each environment's step, which may take long.
    """

    def __init__(
        self,
        environment_id: str,
        *,
        buffers: Buffers,
        num_envs: int,
        make: Callable[[int], tuple[Stepper, object]],
        faults: Faults,
        on_step: Callable[[], object] | None,
    ) -> None:
        self._id = environment_id
        self.buffers = buffers
        self._make = make
        self._faults = faults
        self._on_step = on_step
        self._num_envs = num_envs
        self._num_void = 0
        self._stage = 0
        self._seeds: tuple[int, ...] = ()
        self._episodes = [0] * self._num_envs
        self._halted = [False] * self._num_envs
        self._resumed: list[int] = []
        # By environment: the phase of its next episodes, the phase it got last, and whether its
        # episode has had no step yet.
        self._phases: list[Phase | None] = [None] * num_envs
        self._told: list[Phase | None] = [None] * num_envs
        self._is_fresh = [False] * num_envs
        self._steppers: dict[int, Stepper] = {}
        self._set_phase: dict[int, SetPhase | None] = {}
        self._read_state: dict[int, Callable[[], Any]] = {}
        for b in range(num_envs):
            self._put(b)

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
        self.buffers.clear()
        for b in range(self._num_envs):
            self._start(b)
        self._write()
        # This follows `_write`, which may replace environments and mark them void.
        self.buffers.all_are_new()

    def step(self, actions: Mapping[str, npt.NDArray[Any]]) -> None:
        """Carry out the pending decisions, as `BatchedEnv.step` does.

        Args:
            actions: Actions by population. int64 [B, S] or float32 [B, S, K].

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If an environment breaks its contract.
        """
        buffers = self.buffers
        # All actions are checked before any environment steps, so that an illegal one changes
        # nothing.
        chosen = buffers.check(actions)
        # The turn is cleared after the check, so that a refused call leaves it unchanged.
        buffers.clear()
        # Episode numbers are set before any episode ends, because this call's results belong to
        # these episodes.
        buffers.episode[:] = self._episodes
        self._stage = 0
        for b, stepper in self._steppers.items():
            if self._halted[b]:
                continue
            if self._on_step is not None:
                self._on_step()
            try:
                # An episode that was reset in one assignment may begin in the next one, with
                # another phase.
                if self._is_fresh[b]:
                    self._tell(b)
                    self._is_fresh[b] = False
                over = stepper.step(chosen)
                if buffers.states is not None:
                    self._write_state(buffers.states, b, over=over)
            except BaseException as error:
                pass_interrupt(error)
                # The other environments go on; this one begins its next episode in the same call.
                self._replace(b, self._blame(error, stepper, doing="step"))
                continue
            if over:
                self._episodes[b] += 1
                # The next episode starts at once: the turn has the end of the old one and the
                # first decision of the new one.
                self._start(b)
        self._stage = 1
        # Halted environments resume after the loop: their first decision is made in this call,
        # their first step in the next. Episode number and seed are those of before the halt.
        for b in self._resumed:
            self._halted[b] = False
            self._start(b)
        self._resumed = []
        self._write()

    def halt(self, environments: Sequence[int]) -> None:
        """Halt environments until they are resumed, as `BatchedEnv.halt` does."""
        self.buffers.forget(environments)
        for b in environments:
            self._halted[b] = True

    def resume(self, environments: Sequence[int]) -> None:
        """Let halted environments begin in the next call of ``step``, as `BatchedEnv.resume`."""
        self._resumed += environments

    def tell(self, phases: Sequence[Phase | None]) -> None:
        """Set the phase of each environment's episodes from the next one on. Length B.

        Args:
            phases: Phases; None: the same as before.
        """
        self._phases = [new or old for new, old in zip(phases, self._phases, strict=True)]

    def close(self) -> None:
        """Release everything that the environments hold.

        Raises:
            EnvironmentFault: If one of them raises; all are closed before.
        """
        faults = []
        for stepper in self._steppers.values():
            try:
                stepper.close()
            except BaseException as error:
                pass_interrupt(error)
                # All environments are closed, even if one of them raises.
                faults.append(self._blame(error, stepper, doing="close"))
        if faults:
            raise faults[0]

    def _put(self, b: int) -> None:
        """Make environment b."""
        self._steppers[b], env = self._make(b)
        self._set_phase[b] = find_set_phase(env)
        self._told[b] = None
        if self.buffers.states is not None:
            self._read_state[b] = state_reader(env)

    def _tell(self, b: int) -> None:
        """Pass an environment its phase if it has changed.

        Raises:
            EnvironmentFault: If ``set_phase`` raises.
        """
        phase, set_phase = self._phases[b], self._set_phase[b]
        # Phases are compared by identity, because each assignment makes new ones.
        if set_phase is None or phase is None or phase is self._told[b]:
            return
        try:
            # The dictionary is a copy, because users' code may change it.
            set_phase(phase.name, phase.agent_steps, dict(phase.players))
        except BaseException as error:
            pass_interrupt(error)
            # A user's environment may raise anything.
            raise EnvironmentFault(raised("set_phase", error)) from error
        self._told[b] = phase

    def _write_state(self, states: States, b: int, *, over: bool) -> None:
        """Read the state of an environment after its step."""
        if not over:
            states.write(states.now, b, self._read_state[b]())
            # An agent may be truncated while others play on, and its final state is the present
            # one.
            states.final[b] = states.now[b]
        # A value is bootstrapped only where an agent was truncated. Otherwise no final state is
        # needed, and the next episode's start writes `now`.
        elif self.buffers.truncated[b].any():
            states.write(states.final, b, self._read_state[b]())

    def _write(self) -> None:
        """Write the pending decisions; environments with invalid ones are replaced first."""
        self._stage = 2
        # A replacement's first decision may be invalid, too; `bear` limits the repetitions.
        while True:
            try:
                return self.buffers.write()
            except DecisionFault as fault:
                self._replace(fault.environment, fault)

    def _start(self, b: int) -> None:
        """Begin an episode."""
        fault = self._try_to_start(b)
        if fault is not None:
            self._replace(b, fault)

    def _try_to_start(self, b: int) -> EnvironmentFault | None:
        stepper, states = self._steppers[b], self.buffers.states
        seed = episode_seed(self._seeds[b], episode=self._episodes[b])
        try:
            self._tell(b)
            self._is_fresh[b] = True
            stepper.start(seed)
            if states is not None:
                states.write(states.now, b, self._read_state[b]())
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
            # Old decisions are dropped before the new start adds some.
            self.buffers.void(b)
            try:
                self._steppers[b].close()
            except BaseException as error:
                pass_interrupt(error)
                # The environment is broken anyway, and its original fault is reported.
                logger.warning("a broken environment does not close either", exc_info=True)
            try:
                self._put(b)
            except BaseException as error:
                pass_interrupt(error)
                # Without an environment, play cannot continue.
                raise EnvironmentNotMade(
                    f"environment {self._id} cannot be made anew: {message_of(error)}"
                ) from error
            self._episodes[b] += 1
            fault = self._try_to_start(b)

    def _bear(self, fault: EnvironmentFault) -> None:
        # `_replace` advances the episode number once per fault, so those episodes are not counted
        # as played.
        self._faults.bear(fault, stage=self._stage, num_played=self.num_played)
        self._num_void += 1

    def _blame(self, error: BaseException, stepper: Stepper, *, doing: str) -> EnvironmentFault:
        """Return an error as the environment's fault: users' environments may raise anything."""
        # Arena's own errors are no fault of the environment and must not be tolerated as one.
        if isinstance(error, ArenaError) and not isinstance(error, EnvironmentFault):
            raise error
        if isinstance(error, EnvironmentFault):
            fault = EnvironmentFault(f"environment {self._id} in {doing}: {error}")
        else:
            what = f"environment {self._id} in {doing}, {stepper.on_turn},"
            fault = EnvironmentFault(raised(what, error))
        # The cause is set explicitly, because the fault is returned and perhaps never raised.
        fault.__cause__ = error
        return fault


def find_set_phase(env: Any) -> SetPhase | None:  # noqa: ANN401
    """Return the outermost ``set_phase`` of an environment and its wrappers, if there is one."""
    for _ in range(MAX_WRAPPERS):
        method = getattr(env, "set_phase", None)
        if callable(method):
            found: SetPhase = method
            return found
        # PettingZoo's conversions pass no other attributes through.
        inner = getattr(env, "env", None)
        env = getattr(env, "aec_env", None) if inner is None else inner
        if env is None:
            return None
    return None


class Faults(Protocol):
    """Counter of faults since a reset."""

    def clear(self) -> None:
        """Reset the count."""

    def bear(self, fault: EnvironmentFault, *, stage: int, num_played: int) -> None:
        """Count a fault, after which its environment is made anew.

        Args:
            fault: The fault.
            stage: Part of a call, counted from 0: every environment in the order of the batch, then
                those that are resumed, then the decisions of all.
            num_played: Episodes since the reset that these environments have played to their ends.

        Raises:
            EnvironmentFault: If the fault is not tolerated.
        """


class ToleratedFaults:
    """Counter of faults that tolerates some of them.

    Args:
        on_fault: Callback for each tolerated fault. None: no fault is tolerated.

    Attributes:
        number: Faults since the reset.
    """

    def __init__(self, on_fault: Callable[[EnvironmentFault], None] | None) -> None:
        self._on_fault = on_fault
        self.number = 0

    def clear(self) -> None:
        """Reset the count."""
        self.number = 0

    def bear(self, fault: EnvironmentFault, *, stage: int, num_played: int) -> None:
        """Count a fault.

        Raises:
            EnvironmentFault: If the limit is exceeded.
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
        """Return how many more faults are tolerated after so many played episodes."""
        return 0 if self._on_fault is None else most_faults(num_played) - self.number


def most_faults(num_played: int) -> int:
    """Return how many faults are tolerated in all after so many played episodes."""
    return FREE_FAULTS + num_played // EPISODES_PER_FAULT
