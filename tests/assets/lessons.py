"""A game whose episodes are as long as an argument says, for lessons: ``lessons:parallel_env``.

Each agent gets 1 for each step, so that its return is the length of the episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Lessons(ParallelEnv):  # type: ignore[misc]
    metadata: dict[str, Any] = {"name": "lessons"}  # noqa: RUF012

    def __init__(self, length: int, width: int) -> None:
        self.possible_agents = ["a", "b"]
        self._length, self._width = length, width
        self._step = 0

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (self._width,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self.agents = list(self.possible_agents)
        self._step = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self._step += 1
        is_over = self._step >= self._length
        agents = self.agents
        self.agents = [] if is_over else agents
        return (
            {agent: self._observation() for agent in agents},
            dict.fromkeys(agents, 1.0),
            dict.fromkeys(agents, is_over),
            dict.fromkeys(agents, False),
            {agent: {"success": float(self._length > 2)} for agent in agents},
        )

    def _observations(self) -> dict[str, Any]:
        return {agent: self._observation() for agent in self.agents}

    def _observation(self) -> Any:
        return np.full(self._width, self._step / self._length, np.float32)


def parallel_env(length: int = 4, width: int = 3) -> Lessons:
    return Lessons(length, width)
