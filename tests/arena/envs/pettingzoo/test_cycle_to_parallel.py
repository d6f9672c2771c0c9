"""Agents in a cycle are the same environment as PettingZoo's conversion of it, step for step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel
from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper

from arena.envs.pettingzoo.cycle_to_parallel import Cycle, strip_checking_wrappers
from arena.envs.registry import MPE_NAMES, make_environment
from arena.errors import EnvironmentFault

CONVERTED = [*(f"mpe2/{name}" for name in MPE_NAMES), "classic/rps-v2"]


def equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[agent], other[agent]) for agent in one
    )


def assert_same_episode(converted: Any, cycle: Cycle, *, seed: int) -> int:
    """Play both with the same random actions; returns the number of steps."""
    observations, infos = converted.reset(seed=seed)
    others, other_infos = cycle.reset(seed=seed)
    assert equal(observations, others)
    assert infos == other_infos
    rng = np.random.default_rng(seed)
    num_steps = 0
    while converted.agents:
        assert converted.agents == cycle.agents
        actions = {
            agent: int(rng.integers(converted.action_space(agent).n)) for agent in converted.agents
        }
        observations, rewards, *flags = converted.step(actions)
        others, other_rewards, *other_flags = cycle.step(actions)
        assert equal(observations, others)
        assert all(rewards[agent] == other_rewards[agent] for agent in converted.possible_agents)
        # Terminations, truncations and infos.
        assert flags == other_flags
        num_steps += 1
    assert not cycle.agents
    return num_steps


@pytest.mark.parametrize("environment", CONVERTED)
@pytest.mark.slow
def test_the_same_actions_lead_to_the_same_episodes(environment: str) -> None:
    def made() -> Any:
        return make_environment(environment, kwargs={}, api="parallel", launch_directory=".")

    converted, cycle = made(), strip_checking_wrappers(made(), has_masks=False)
    assert type(cycle) is Cycle
    for seed in range(4):
        assert assert_same_episode(converted, cycle, seed=seed) > 1


class Mortal(AECEnv):  # type: ignore[misc]
    """Agents act in a cycle, each action pays its agent and the next; they die at ends of cycles.

    Args:
        lives: By agent, after how many cycles it dies; every second agent is truncated.
        backwards: Whether the order is not that of ``agents``.
    """

    metadata: ClassVar[dict[str, Any]] = {"is_parallelizable": True, "name": "mortal"}
    render_mode = None

    def __init__(self, lives: Mapping[str, int], *, backwards: bool = False) -> None:
        super().__init__()
        self._lives = dict(lives)
        self._backwards = backwards
        self.possible_agents = list(lives)

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"at": 0} for agent in self.agents}
        self._cycle, self._at, self._sum = 0, 0, seed or 0
        self._select()

    def observe(self, agent: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        place = self.possible_agents.index(agent)
        return np.array([place, self._cycle, self._sum], dtype=np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents and agent not in self.agents:
                self._at = 0
                self._select()
            return
        assert action is not None
        self._sum += action
        self._clear_rewards()
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.rewards[agent] += 0.1 * action
        self.rewards[following] += 1.0
        self._at += 1
        if self._at == len(self.agents):
            self._at = 0
            self._cycle += 1
            for place, name in enumerate(self.possible_agents):
                if name in self.agents and self._lives[name] <= self._cycle:
                    (self.truncations if place % 2 else self.terminations)[name] = True
            self.infos = {name: {"at": self._cycle} for name in self.agents}
        self._select()

    def _select(self) -> None:
        dead = [name for name in self.agents if self.terminations[name] or self.truncations[name]]
        if dead:
            self.agent_selection = dead[0]
        elif self._backwards:
            self.agent_selection = self.agents[-1 - self._at]
        else:
            self.agent_selection = self.agents[self._at]

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    "lives", [{"a": 1}, {"a": 3, "b": 3}, {"a": 2, "b": 5, "c": 3}, {"a": 4, "b": 1, "c": 1}]
)
def test_agents_may_die_at_the_end_of_a_cycle(lives: dict[str, int]) -> None:
    converted = aec_to_parallel(OrderEnforcingWrapper(Mortal(lives)))
    cycle = strip_checking_wrappers(
        aec_to_parallel(OrderEnforcingWrapper(Mortal(lives))), has_masks=False
    )
    for seed in range(3):
        assert assert_same_episode(converted, cycle, seed=seed) == max(lives.values())


def test_another_order_than_that_of_the_agents_is_refused() -> None:
    cycle = strip_checking_wrappers(
        aec_to_parallel(Mortal({"a": 2, "b": 2}, backwards=True)), has_masks=False
    )
    cycle.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="'a' was due, 'b' is on turn"):
        cycle.step({"a": 0, "b": 0})


def test_nobody_looks_at_what_is_not_shown() -> None:
    """PettingZoo's conversion observes every agent twice."""
    asked = []

    class Counting(Mortal):
        """Notes who is observed."""

        def observe(self, agent: str) -> np.ndarray[Any, np.dtype[np.float32]]:
            asked.append(agent)
            return super().observe(agent)

    cycle = strip_checking_wrappers(aec_to_parallel(Counting({"a": 9, "b": 9})), has_masks=False)
    cycle.reset(seed=1)
    cycle.step({"a": 0, "b": 0})
    assert asked == ["a", "b"] * 2


def test_only_pettingzoos_own_conversion_is_replaced() -> None:
    class Mine(BaseWrapper):  # type: ignore[misc]
        """A user's wrapper."""

    wrapped = aec_to_parallel(OrderEnforcingWrapper(Mine(Mortal({"a": 1, "b": 2}))))
    cycle = strip_checking_wrappers(wrapped, has_masks=False)
    assert_same_episode(aec_to_parallel(Mortal({"a": 1, "b": 2})), cycle, seed=1)
    other = turn_based_aec_to_parallel(Mortal({"a": 1}))
    assert strip_checking_wrappers(other, has_masks=False) is other
