"""Wrappers for environments whose agents are not named by text, which give them text names.

PettingZoo leaves the type of names open, and says that they are typically integers. Wrapped where
they are made, such environments have the agents ``0`` and ``1`` everywhere: in the configuration,
on the wire, on screen and to bots.

Tests: `tests/arena/envs/pettingzoo/test_cycle_to_parallel.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper

from arena.envs.pettingzoo.cycle_to_parallel import Step
from arena.errors import ConfigError


def with_text_names(env: Any, *, environment_id: str) -> Any:  # noqa: ANN401
    """Return an environment whose agents are named by text: the same one if they are already.

    Raises:
        ConfigError: If two agents have the same text.
    """
    # An environment may omit the attribute.
    agents = getattr(env, "possible_agents", None) or ()
    if all(isinstance(agent, str) for agent in agents):
        return env
    own = {str(agent): agent for agent in agents}
    if len(own) < len(agents):
        raise ConfigError(
            f"environment.id {environment_id} must have agents that differ as text, got {agents!r}"
        )
    return _Turns(env, own) if isinstance(env, AECEnv) else _AtOnce(env, own)


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(agent): value for agent, value in values.items()}


class _TextNames:
    """Base of both wrappers: agents as text, and their spaces."""

    env: Any

    def __init__(self, env: Any, own: Mapping[str, Any]) -> None:  # noqa: ANN401
        super().__init__(env)  # type: ignore[call-arg]  # a wrapper of PettingZoo is beside it
        self._own = own
        self.possible_agents = list(own)

    @property
    def agents(self) -> list[str]:
        return list(map(str, self.env.agents))

    def observation_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.env.observation_space(self._own[agent])

    def action_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.env.action_space(self._own[agent])


def _by_agent(name: str) -> property:
    """Return a property that reads a mapping of the environment, with agents as text."""
    return property(lambda wrapper: _named(getattr(wrapper.env, name)))


class _Turns(_TextNames, BaseWrapper):  # type: ignore[misc]  # PettingZoo has no types
    rewards = _by_agent("rewards")
    _cumulative_rewards = _by_agent("_cumulative_rewards")
    terminations = _by_agent("terminations")
    truncations = _by_agent("truncations")
    infos = _by_agent("infos")

    @property
    def agent_selection(self) -> str:
        return str(self.env.agent_selection)

    def observe(self, agent: str) -> Any:  # noqa: ANN401
        return self.env.observe(self._own[agent])


class _AtOnce(_TextNames, BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo has no types
    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return _named(observations), _named(infos)

    def step(self, actions: Mapping[str, Any]) -> Step:
        own = {self._own[agent]: action for agent, action in actions.items()}
        observations, rewards, terminations, truncations, infos = self.env.step(own)
        return (
            _named(observations),
            _named(rewards),
            _named(terminations),
            _named(truncations),
            _named(infos),
        )
