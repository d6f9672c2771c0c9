"""Two walkers in a corridor, who win together at its end: longer corridors are later lessons."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

AGENTS = ("walker_0", "walker_1")
PATIENCE = 3
"""Steps that there are for each cell of the corridor."""


class Corridor(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Game of two agents who share one return: 1 if both reach the end in time.

    Args:
        length: Cells up to the end.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "corridor_v0", "render_modes": []}

    def __init__(self, length: int = 8) -> None:
        self.possible_agents = list(AGENTS)
        self.length = length
        self.render_mode = None
        # Distances of the agent and of its mate, and time left, are scaled to [0, 1] for every
        # lesson.
        self._seen = {agent: Box(0.0, 1.0, (3,), np.float32) for agent in AGENTS}
        # The actions are back, wait and ahead.
        self._choices = {agent: Discrete(3) for agent in AGENTS}

    def observation_space(self, agent: str) -> Box:
        """Return the space of what an agent sees."""
        return self._seen[agent]

    def action_space(self, agent: str) -> Discrete:
        """Return the space of its actions."""
        return self._choices[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Put both at the beginning."""
        self.agents = list(AGENTS)
        self._cells = dict.fromkeys(AGENTS, 0)
        self._left = PATIENCE * self.length
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """Move both."""
        for agent in AGENTS:
            cell = self._cells[agent] + int(actions[agent]) - 1
            self._cells[agent] = min(max(cell, 0), self.length)
        self._left -= 1
        has_won = all(cell == self.length for cell in self._cells.values())
        is_over = has_won or self._left == 0
        self.agents = [] if is_over else list(AGENTS)
        rewards = dict.fromkeys(AGENTS, float(has_won))
        infos: dict[str, Any] = {agent: {} for agent in AGENTS}
        over = dict.fromkeys(AGENTS, is_over)
        return self._observations(), rewards, over, dict.fromkeys(AGENTS, False), infos

    def _observations(self) -> dict[str, Any]:
        to_go = {agent: 1.0 - cell / self.length for agent, cell in self._cells.items()}
        time = self._left / (PATIENCE * self.length)
        return {
            agent: np.array([to_go[agent], to_go[mate], time], np.float32)
            for agent, mate in (AGENTS, AGENTS[::-1])
        }


def env(length: int = 8) -> Corridor:
    """Make the game: ``environment.id`` is ``corridor:env``."""
    return Corridor(length)
