"""A game whose players die in the middle of an episode and leave something to an heir."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

KILLS = {"a": ("c",), "b": ("a", "d")}
"""Whom an agent's first turn kills; ``b`` is left, and its second turn ends the game."""


class Heirs(AECEnv):  # type: ignore[misc]
    """Four players. A turn pays 1, a kill 10 to the killer and -10 to the dead one.

    The step of a dead agent, which PettingZoo wants, pays its heir ``b`` 3.
    """

    metadata = {"name": "heirs", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c", "d"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = "a"
        self._skip_agent_selection = None
        self._has_killed: set[str] = set()

    def observe(self, agent: str) -> Any:
        return np.zeros(1, dtype=np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            if "b" in self.agents:
                self.rewards["b"] = 3.0
                self._accumulate_rewards()
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.rewards[agent] = 1.0
        if agent in self._has_killed:
            self.terminations[agent] = True
        for victim in () if agent in self._has_killed else KILLS[agent]:
            self.rewards[agent] += 10.0
            self.rewards[victim] -= 10.0
            self.terminations[victim] = True
        self._has_killed.add(agent)
        self._accumulate_rewards()
        self.agent_selection = "b"
        self._deads_step_first()

    def close(self) -> None:
        """Nothing is held."""
