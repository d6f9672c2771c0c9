"""States of environments, for value networks: PettingZoo's ``state()``. Torch-free.

Tests: `tests/arena/envs/spaces/test_critic_input.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from arena.envs.pettingzoo.cycle_to_parallel import holder_of_state
from arena.envs.spaces.observations import NUMERIC_KINDS, describe, flatten_into
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import UINT8, ObservationLayout
from arena.users_code import pass_interrupt, raised


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
    # PettingZoo's own classes raise NotImplementedError if an environment has no state.
    except (AttributeError, NotImplementedError) as error:
        raise no_state(environment_id, why=f"it raised {type(error).__name__}") from error
    except BaseException as error:
        pass_interrupt(error)
        # A user's environment may raise anything.
        raise no_state(environment_id, why=raised("it", error)) from error
    # The space is optional in PettingZoo, and state() does not always match it.
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
        # The array is temporary, because only the success of the write matters.
        flatten_into(layout, np.zeros(layout.size, dtype=layout.dtype), state)
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
        # A row of bytes is four times smaller than one of float32.
        return spaces.Box(0, 255, values.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, values.shape, np.float32)


def state_reader(env: Any) -> Callable[[], Any]:  # noqa: ANN401
    """Return the environment's ``state``, below wrappers that count or check resets."""
    # The conversion's state() is that of the inner environment.
    if type(env) is aec_to_parallel_wrapper:
        env = env.aec_env
    read: Callable[[], Any] = holder_of_state(env).state
    return read
