"""Agents in a cycle are the same environment as PettingZoo's conversion of it, step for step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.test import api_test, parallel_api_test
from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel
from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper

from arena.envs.pettingzoo.cycle_to_parallel import Cycle, strip_checking_wrappers
from arena.envs.pettingzoo.text_names import with_text_names
from arena.envs.registry import MPE_NAMES, make_environment
from arena.errors import ConfigError, EnvironmentFault
from tests.arena.envs.conftest import Make, play_batched
from tests.assets.environments import ScriptedParallel, ScriptedTurns

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
        # The flags are terminations, truncations and infos.
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


def make(environment: str) -> Any:
    return make_environment(environment, kwargs={}, api="aec", launch_directory=".")


@pytest.mark.parametrize("environment", ["classic/connect_four-v3", "classic/tictactoe-v3"])
def test_the_same_moves_lead_to_the_same_game(environment: str) -> None:
    checked, bare = make(environment), strip_checking_wrappers(make(environment), has_masks=True)
    assert bare is bare.unwrapped
    rng = np.random.default_rng(1)
    for game in range(20):
        checked.reset(seed=game)
        bare.reset(seed=game)
        while checked.agents:
            agent = checked.agent_selection
            assert agent == bare.agent_selection
            assert checked.rewards == bare.rewards
            assert checked.terminations == bare.terminations
            assert checked.truncations == bare.truncations
            seen, other = checked.observe(agent), bare.observe(agent)
            assert (seen["observation"] == other["observation"]).all()
            assert (seen["action_mask"] == other["action_mask"]).all()
            over = checked.terminations[agent] or checked.truncations[agent]
            action = None if over else int(rng.choice(np.flatnonzero(seen["action_mask"])))
            checked.step(action)
            bare.step(action)
        assert not bare.agents


def test_an_environment_without_masks_keeps_the_wrapper_that_ends_illegal_games() -> None:
    env = strip_checking_wrappers(make("classic/connect_four-v3"), has_masks=False)
    assert type(env) is TerminateIllegalWrapper


def test_a_users_wrapper_stops_it() -> None:
    class Mine(BaseWrapper):  # type: ignore[misc]
        """A user's wrapper: what it does is none of our business."""

    inner = make("classic/connect_four-v3")
    env = OrderEnforcingWrapper(Mine(inner))
    assert type(strip_checking_wrappers(env, has_masks=True)) is Mine


TURNS = (
    {"agent": 0, "join": [2]},
    {"agent": 1, "terminate": [1]},
    {"agent": 2, "truncate": [0]},
    {"agent": 2},
)
AT_ONCE: tuple[Mapping[str, Any], ...] = ({"join": [2]}, {"hide": [1], "terminate": [0]}, {}, {})


def as_text(value: Any) -> Any:
    """The same script about agents that are named by text."""
    if isinstance(value, Mapping):
        return {key: as_text(inner) for key, inner in value.items()}
    return list(map(as_text, value)) if isinstance(value, list | tuple) else str(value)


@pytest.mark.parametrize(
    ("name", "script", "truncated"),
    [("Turns", TURNS, {"0"}), ("Parallel", AT_ONCE, {"1", "2"})],
)
def test_numbers_play_as_their_texts_do(
    name: str, script: Any, truncated: set[str], make: Make
) -> None:
    kwargs = {"agents": [0, 1, 2], "first": [0, 1], "script": script}
    numbers, texts = (
        make(f"environments:Scripted{name}", kwargs=of) for of in (kwargs, as_text(kwargs))
    )
    assert numbers.spec.agents == ("0", "1", "2")
    played, expected = (
        play_batched(made, seeds=[1, 2, 3], num_steps=9) for made in (numbers, texts)
    )
    assert played == expected
    assert {agent for episode in played[0] for agent in episode.truncated} == truncated


def test_pettingzoos_own_tests_pass() -> None:
    turns, at_once = ScriptedTurns(agents=(0, 1, 2), script=TURNS), ScriptedParallel(agents=(0, 1))  # type: ignore[arg-type]
    api_test(with_text_names(turns, environment_id="x"), num_cycles=10)
    parallel_api_test(with_text_names(at_once, environment_id="x"), num_cycles=10)


def test_text_stays_as_it_is_and_equal_texts_are_refused() -> None:
    env = ScriptedTurns()
    assert with_text_names(env, environment_id="x") is env
    env.possible_agents = [0, "0"]
    with pytest.raises(
        ConfigError, match=r"x must have agents that differ as text, got \[0, '0'\]"
    ):
        with_text_names(env, environment_id="x")
