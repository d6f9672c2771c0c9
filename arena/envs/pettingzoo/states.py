"""States of the environments of a batch, for value networks: PettingZoo's ``state()``. Torch-free.

They are read by the environments' steppers after every call.
Shapes: B environments, A agents, G numbers of a flattened state.

Tests: `tests/arena/envs/spaces/test_critic_input.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from arena.envs.pettingzoo.buffers import Allocate
from arena.envs.pettingzoo.cycle_to_parallel import holder_of_state
from arena.envs.pettingzoo.episode import Stepper
from arena.envs.spaces.observations import NUMERIC_KINDS, UINT8, ObservationLayout, describe
from arena.errors import ConfigError, EnvironmentFault
from arena.users_code import pass_interrupt, raised


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


def no_state(environment_id: str, *, why: str) -> ConfigError:
    """Return the error for a value network whose environment has no state."""
    return ConfigError(
        f"network.critic state needs an environment with state(): {environment_id} has none, "
        f"{why}. network.critic joint reads what all agents of a side see"
    )


def describe_state(env: Any, *, environment_id: str) -> dict[str, object]:  # noqa: ANN401
    """Return the space of a state as plain data: ``state_space``, or else the space of one state.

    Args:
        env: A PettingZoo environment that has been reset.
        environment_id: Environment's id, for messages.

    Raises:
        ConfigError: If there is no state, or no network can read it.
    """
    try:
        state = state_reader(env)()
    except (AttributeError, NotImplementedError) as error:
        raise no_state(environment_id, why=f"it raised {type(error).__name__}") from error
    except BaseException as error:
        pass_interrupt(error)
        # A user's environment may raise anything.
        raise no_state(environment_id, why=raised("it", error)) from error
    # Optional in PettingZoo, and not always what state() returns.
    declared = getattr(env, "state_space", None)
    if isinstance(declared, spaces.Space) and _holds(declared, state):
        space: spaces.Space[Any] = declared
    else:
        space = _space_around(state, environment_id=environment_id)
    return describe(space)


def _holds(space: spaces.Space[Any], state: object) -> bool:
    """Return whether rows of the declared space can hold a state; bounds are ignored."""
    try:
        layout = ObservationLayout.from_json(describe(space))
        # Scratch: whether the write succeeds is all that counts.
        layout.flatten_into(np.zeros(layout.size, dtype=layout.dtype), state)
    except (ConfigError, EnvironmentFault, LookupError, TypeError, ValueError):
        return False
    return True


def _space_around(state: object, *, environment_id: str) -> spaces.Space[Any]:
    try:
        values = np.asarray(state)
    except ValueError as error:
        raise no_state(environment_id, why=f"what it gives is no array: {error}") from None
    if values.dtype.kind not in NUMERIC_KINDS or not values.size:
        raise no_state(
            environment_id,
            why=f"it must be an array of numbers, got {values.dtype} {values.shape}",
        )
    if values.dtype == UINT8:
        # Bytes keep the row four times smaller than float32.
        return spaces.Box(0, 255, values.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, values.shape, np.float32)


def state_reader(env: Any) -> Callable[[], Any]:  # noqa: ANN401
    """Return the environment's ``state``, past wrappers that would count our resets or
    check them.
    """
    # Its own state() is that of the environment inside.
    if type(env) is aec_to_parallel_wrapper:
        env = env.aec_env
    read: Callable[[], Any] = holder_of_state(env).state
    return read
