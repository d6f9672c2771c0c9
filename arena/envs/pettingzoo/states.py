"""States of the environments of a batch, read by their steppers after every call. Torch-free.

Shapes: B environments, A agents, G numbers of a flattened state.

Tests: `tests/arena/envs/spaces/test_critic_input.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.envs.pettingzoo.buffers import Allocate
from arena.envs.pettingzoo.episode import Stepper
from arena.envs.pettingzoo.global_state import state_reader
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import EnvironmentFault


class States:
    """States of B environments as rows.

    Args:
        layout: Layout of one state.
        truncated: Agents that were cut off in the last call, filled by the buffers. bool [B, A].
        allocate: Function that allocates the rows.

    Attributes:
        now: States after the last call. float32 or uint8 [B, G].
        final: States before any reset; undefined where no agent was truncated. [B, G].
    """

    def __init__(
        self,
        layout: ObservationLayout,
        *,
        truncated: npt.NDArray[np.bool_],
        allocate: Allocate = np.zeros,
    ) -> None:
        self._layout = layout
        self._truncated = truncated
        self.now = allocate((len(truncated), layout.size), layout.dtype)
        # An array of its own: `now` is overwritten by the reset that follows an end.
        self.final = allocate(self.now.shape, layout.dtype)

    def watching(self, stepper: Stepper, env: Any, *, b: int) -> StateStepper:  # noqa: ANN401
        """Wrap a stepper so that it reads the state of environment b after each step."""
        return StateStepper(stepper, read=state_reader(env), states=self, b=b)

    def write(self, rows: npt.NDArray[Any], b: int, state: object) -> None:
        """Write a state into ``now`` or ``final``.

        Raises:
            EnvironmentFault: If the state differs from the inspected space.
        """
        try:
            self._layout.flatten_into(rows[b], state)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"state(): {fault}") from fault

    def needs_final(self, b: int) -> bool:
        """Return whether an agent was cut off in the last call."""
        return bool(self._truncated[b].any())


class StateStepper:
    """`Stepper` that also reads the environment's state after every call.

    Args:
        stepper: Stepper of the environment.
        read: ``state`` of the environment.
        states: States to write.
        b: Index of the environment in the batch.
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
        """Agent whose action is carried out, for messages."""
        return self._stepper.on_turn

    def start(self, seed: int) -> None:
        """Reset, and set the first pending decisions."""
        self._stepper.start(seed)
        self._states.write(self._states.now, self._b, self._read())

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Step as `Stepper.step` does, then read the state."""
        states, b = self._states, self._b
        over = self._stepper.step(actions)
        if not over:
            states.write(states.now, b, self._read())
            # An agent may be cut off while the others play on: its final state is this one.
            states.final[b] = states.now[b]
        # A value is bootstrapped only where an agent was cut off. Once all have ended for good, no
        # state is needed, and `start` writes `now`.
        elif states.needs_final(b):
            states.write(states.final, b, self._read())
        return over

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._stepper.close()
