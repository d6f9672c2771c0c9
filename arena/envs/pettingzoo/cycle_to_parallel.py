"""Faster forms of PettingZoo's conversions and of its checked environments.

Agents that act in a cycle are converted to acting at once:
`pettingzoo.utils.conversions.aec_to_parallel` calls ``last()`` for every action, which makes an
unused observation, and reads everything through the wrappers of the environment that it drives. All
of mpe2's parallel environments, for instance, are made by it.

PettingZoo's checking wrappers are removed, because Arena guarantees these rules itself. PettingZoo
wraps its turn-based environments three times, to detect a step before the first reset, an action
outside its space, and an illegal move. The batched view resets first, and its actors (policies with
masks, bots with checked answers) give only legal actions. Without wrappers random play is two to
three times as fast.

Tests: `tests/arena/envs/pettingzoo/test_cycle_to_parallel.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import (
    AssertOutOfBoundsWrapper,
    ClipOutOfBoundsWrapper,
    OrderEnforcingWrapper,
    TerminateIllegalWrapper,
)

from arena.envs.pettingzoo.reward_components import ComponentRow
from arena.errors import EnvironmentFault

Step = tuple[
    Mapping[str, Any],
    Mapping[str, float],
    Mapping[str, bool],
    Mapping[str, bool],
    Mapping[str, Any],
]
"""Observations, rewards, terminations, truncations, infos: the return of a Parallel environment."""

CHECKS: tuple[type, ...] = (OrderEnforcingWrapper, AssertOutOfBoundsWrapper)

PASSING: tuple[type, ...] = (*CHECKS, ClipOutOfBoundsWrapper, TerminateIllegalWrapper)
"""Wrappers that pass on the environment's state unchanged."""


class Cycle:
    """Turn-based environment as a Parallel one. Return values stay valid until the next call.

    Args:
        env: A ``pettingzoo.AECEnv`` whose agents act in a cycle and die at its end only.
        state: Object to read ``agents``, ``rewards`` and so on from.
        components: Row that is credited after each turn, because the infos of the last turn do not
            contain all components. None: there are no components.

    Attributes:
        agents: Agents that act in the next step.
    """

    def __init__(
        self,
        env: Any,  # noqa: ANN401
        *,
        state: Any,  # noqa: ANN401
        components: ComponentRow | None = None,
    ) -> None:
        self._env = env
        self._components = components
        self._state = state
        self.agents: list[str] = []

    def reset(self, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Start an episode; return observations and infos."""
        env, state = self._env, self._state
        env.reset(seed=seed)
        if self._components is not None:
            self._components.begin_turns(state.infos)
        self.agents = state.agents
        observations = {
            agent: env.observe(agent)
            for agent in state.agents
            if not (state.terminations[agent] or state.truncations[agent])
        }
        return observations, state.infos

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Give each agent its turn.

        Raises:
            EnvironmentFault: If they do not take turns in the order of ``agents``.
        """
        env, state = self._env, self._state
        rewards: defaultdict[str, float] = defaultdict(int)
        for agent in state.agents:
            if agent != state.agent_selection:
                raise EnvironmentFault(
                    f"agents that act at once must take turns in their order: {agent!r} was due, "
                    f"{state.agent_selection!r} is on turn"
                )
            env.step(actions[agent])
            if self._components is not None:
                self._components.credit_turn(state.infos)
            received = state.rewards
            # r_i of the step is the sum of r_i over the turns of the cycle.
            if any(received.values()):
                for receiver in state.agents:
                    rewards[receiver] += received[receiver]
        # Observations are read before burying, because a truncated agent is in `agents` until
        # then, and its last observation counts.
        observations = {agent: env.observe(agent) for agent in state.agents}
        terminations, truncations, infos = state.terminations, state.truncations, state.infos
        if True in terminations.values() or True in truncations.values():
            # Burying removes agents from these dictionaries, so copies are kept.
            terminations, truncations, infos = dict(terminations), dict(truncations), dict(infos)
            self._bury()
        self.agents = state.agents
        return observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._env.close()

    def _bury(self) -> None:
        """Step dead agents while they are on turn, as PettingZoo requires."""
        state = self._state
        while state.agents and (
            state.terminations[state.agent_selection] or state.truncations[state.agent_selection]
        ):
            self._env.step(None)
            if self._components is not None:
                self._components.credit_turn(state.infos)


def strip_checking_wrappers(
    env: Any,  # noqa: ANN401
    *,
    has_masks: bool,
    components: ComponentRow | None = None,
) -> Any:  # noqa: ANN401
    """Remove PettingZoo's own checking wrappers, from the outside in, up to any other wrapper.

    Args:
        env: An AEC environment, or a Parallel one; among the latter only PettingZoo's conversions
            of AEC environments have such wrappers, inside.
        has_masks: Whether every agent has an action mask. Without one, an illegal move is the
            game's business, and the wrapper that ends the game for it stays.
        components: Row that a `Cycle` credits, see there.

    Returns:
        The remaining environment: AEC if it was one; a Parallel one, or a `Cycle`.
    """
    # Exact types are compared here and below, because a subclass may do more than check.
    if type(env) is aec_to_parallel_wrapper:
        turns = strip_checking_wrappers(env.aec_env, has_masks=has_masks)
        return Cycle(turns, state=holder_of_state(turns), components=components)
    checks = (*CHECKS, TerminateIllegalWrapper) if has_masks else CHECKS
    # Wrappers are removed from the outside in, because a check below another wrapper belongs to
    # that wrapper.
    while type(env) in checks:
        env = env.env
    return env


def holder_of_state(env: Any) -> Any:  # noqa: ANN401
    """Return the object to read ``rewards``, ``agents`` and so on of an AEC environment from.

    PettingZoo's own wrappers pass these on unchanged, but each read costs a microsecond per layer.
    Any other wrapper may change them, so it is read itself.
    """
    while type(env) in PASSING:
        env = env.env
    return env
