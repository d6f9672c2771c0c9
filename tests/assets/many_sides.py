"""Crowds in which each agent is a side: whoever takes the larger number scores more."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NUMBERS = 3


@cache
def observation_space() -> spaces.Space[Any]:
    return spaces.Box(0.0, 1.0, (2,), np.float32)


@cache
def action_space() -> spaces.Space[Any]:
    return spaces.Discrete(NUMBERS)


class AtOnce(ParallelEnv):  # type: ignore[misc]
    """All decide at once, twice."""

    metadata = {"name": "at_once_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, num_agents: int = 200, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{index}" for index in range(num_agents)]
        self.agents: list[str] = []
        self._turn = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return observation_space()

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return action_space()

    def _observed(self) -> dict[str, Any]:
        return {agent: np.array([self._turn / 2, 1.0], np.float32) for agent in self.agents}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._turn = self.possible_agents[:], 0
        return self._observed(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self._turn += 1
        agents, over = self.agents, self._turn == 2
        rewards = {agent: float(actions[agent]) / NUMBERS for agent in agents}
        observed = self._observed()
        if over:
            self.agents = []
        return (
            observed,
            rewards,
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )


class InTurn(AECEnv):  # type: ignore[misc]
    """Each decides once, one after the other; all are paid when the last one has."""

    metadata = {  # noqa: RUF012
        "name": "in_turn_v0",
        "render_modes": [],
        "is_parallelizable": False,
    }

    def __init__(self, num_agents: int = 22, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{index}" for index in range(num_agents)]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return observation_space()

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return action_space()

    def observe(self, agent: str) -> Any:
        return np.array([0.5, 1.0], np.float32)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self._taken: dict[str, int] = {}
        self.agent_selection = self.agents[0]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._taken[agent] = int(action)
        if len(self._taken) < len(self.agents):
            self.agent_selection = self.agents[len(self._taken)]
        else:
            self.rewards = {one: taken / NUMBERS for one, taken in self._taken.items()}
            self.terminations = dict.fromkeys(self.agents, True)
            self.agent_selection = self.agents[0]
        self._accumulate_rewards()
