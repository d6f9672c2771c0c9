"""Environments whose turns have their `state()`, for value networks.

Shapes: B environments, G numbers of a flattened state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from arena.envs.base import BatchedEnv, Turn
from arena.envs.pettingzoo.batch import Stepper
from arena.envs.pettingzoo.global_state import state_reader
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import EnvironmentFault


class States:
    """The states of B environments as rows.

    Args:
        layout: Of one state.
        truncated: Agents that were cut off in the last call, written by others. bool [B, A].

    Attributes:
        now: After the last call. float32 or uint8 [B, G].
        final: The same before any reset; undefined where no agent was truncated. [B, G].
    """

    def __init__(self, layout: ObservationLayout, *, truncated: npt.NDArray[np.bool_]) -> None:
        self._layout = layout
        self._truncated = truncated
        self.now = np.zeros((len(truncated), layout.size), dtype=layout.dtype)
        self.final = np.zeros_like(self.now)

    def watching(self, stepper: Stepper, env: Any, *, b: int) -> StateStepper:  # noqa: ANN401
        """Reads the state of environment b whenever that is stepped."""
        return StateStepper(stepper, read=state_reader(env), states=self, b=b)

    def write(self, rows: npt.NDArray[Any], b: int, state: object) -> None:
        """Write one of ``now`` or ``final``.

        Raises:
            EnvironmentFault: If the state is not what it was when the environment was inspected.
        """
        try:
            self._layout.flatten_into(rows[b], state)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"state(): {fault}") from fault

    def needs_final(self, b: int) -> bool:
        """Whether an agent was cut off in the last call."""
        return bool(self._truncated[b].any())


class StateStepper:
    """A `Stepper` that also reads the environment's state after every call.

    Args:
        stepper: Steps the environment.
        read: Its ``state``.
        states: Where states are written.
        b: Which environment of the batch.
    """

    def __init__(
        self, stepper: Stepper, *, read: Callable[[], Any], states: States, b: int
    ) -> None:
        self._stepper = stepper
        self._read = read
        self._states = states
        self._b = b

    @property
    def on_turn(self) -> str:
        """Whose action is carried out, for messages."""
        return self._stepper.on_turn

    def start(self, seed: int) -> None:
        """Reset, and ask whoever decides first."""
        self._stepper.start(seed)
        self._states.write(self._states.now, self._b, self._read())

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """As `Stepper.step`. Nobody asks what the state is once all have ended for good."""
        states, b = self._states, self._b
        over = self._stepper.step(actions)
        if not over:
            states.write(states.now, b, self._read())
            states.final[b] = states.now[b]
        elif states.needs_final(b):
            states.write(states.final, b, self._read())
        return over

    def close(self) -> None:
        """Release what the environment holds."""
        self._stepper.close()


class WithStates:
    """A `BatchedEnv` whose turns have the states that its steppers read.

    Args:
        env: What is played.
        states: Written by its steppers.
        device: Where turns go.
    """

    def __init__(self, env: BatchedEnv, *, states: States, device: torch.device) -> None:
        self._env = env
        self._device = device
        self._now = torch.from_numpy(states.now)
        self._final = torch.from_numpy(states.final)

    @property
    def num_envs(self) -> int:
        """B."""
        return self._env.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        return self._env.agents

    def reset(self, seeds: Sequence[int]) -> Turn:
        """As `BatchedEnv.reset`."""
        return self._told(self._env.reset(seeds))

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """As `BatchedEnv.step`."""
        return self._told(self._env.step(actions))

    def halt(self, environments: torch.Tensor) -> None:
        """As `BatchedEnv.halt`."""
        self._env.halt(environments)

    def resume(self, environments: torch.Tensor) -> None:
        """As `BatchedEnv.resume`."""
        self._env.resume(environments)

    def close(self) -> None:
        """As `BatchedEnv.close`."""
        self._env.close()

    def _told(self, turn: Turn) -> Turn:
        device = self._device
        return replace(turn, state=self._now.to(device), final_state=self._final.to(device))
