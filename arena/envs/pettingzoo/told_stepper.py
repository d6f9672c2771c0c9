"""Environments with a method ``set_phase``, which is called before their episodes.

Tests: `tests/arena/envs/test_phase.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.envs.base import Phase
from arena.envs.pettingzoo.stepper import Stepper
from arena.errors import EnvironmentFault
from arena.users_code import pass_interrupt, raised

SetPhase = Callable[[str, int | None, dict[str, str]], object]

MAX_WRAPPERS = 64
"""Wrappers that are looked through, so that one which contains itself ends the search."""


def find_set_phase(env: Any) -> SetPhase | None:  # noqa: ANN401
    """Return the outermost ``set_phase`` of an environment and its wrappers, if there is one."""
    for _ in range(MAX_WRAPPERS):
        method = getattr(env, "set_phase", None)
        if callable(method):
            found: SetPhase = method
            return found
        # PettingZoo's conversions pass no other attributes on.
        inner = getattr(env, "env", None)
        env = getattr(env, "aec_env", None) if inner is None else inner
        if env is None:
            return None
    return None


class Phases:
    """Phase of each environment of a batch; None: told nothing yet.

    Args:
        num_envs: B.
    """

    def __init__(self, num_envs: int) -> None:
        self.of_env: list[Phase | None] = [None] * num_envs

    def post(self, phases: Sequence[Phase]) -> None:
        """Replace the phases. Length B."""
        self.of_env[:] = phases

    def watching(self, stepper: Stepper, env: Any, *, b: int) -> Stepper:  # noqa: ANN401
        """Return a stepper that tells its environment; the same one if that has no ``set_phase``.

        Args:
            stepper: Stepper of the environment.
            env: The environment with all its wrappers.
            b: Index of the environment in the batch.
        """
        set_phase = find_set_phase(env)
        return stepper if set_phase is None else ToldStepper(stepper, set_phase, phases=self, b=b)


class ToldStepper:
    """`Stepper` that tells its environment the phase before an episode, where it has changed.

    Args:
        stepper: Stepper of the environment.
        set_phase: Method of the environment.
        phases: Phases of the batch.
        b: Index of the environment in the batch.
    """

    def __init__(self, stepper: Stepper, set_phase: SetPhase, *, phases: Phases, b: int) -> None:
        self._stepper = stepper
        self._set_phase = set_phase
        self._phases = phases
        self._b = b
        self._told: Phase | None = None
        self._has_stepped = False

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""
        return self._stepper.on_turn

    def start(self, seed: int) -> None:
        """Tell the phase if it is another one, then reset.

        Raises:
            EnvironmentFault: If ``set_phase`` raises.
        """
        self._tell()
        self._has_stepped = False
        self._stepper.start(seed)

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Step as `Stepper.step` does."""
        if not self._has_stepped:
            # An episode that was reset by an assignment may begin in the next one.
            self._tell()
            self._has_stepped = True
        return self._stepper.step(actions)

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._stepper.close()

    def _tell(self) -> None:
        phase = self._phases.of_env[self._b]
        # By identity: each assignment brings its own.
        if phase is None or phase is self._told:
            return
        try:
            # A dictionary of its own: a user's code may change it.
            self._set_phase(phase.name, phase.agent_steps, dict(phase.players))
        except BaseException as error:
            pass_interrupt(error)
            # A user's environment may raise anything.
            raise EnvironmentFault(raised("set_phase", error)) from error
        self._told = phase
