"""Nim with one heap: take one, two or three sticks; the player that takes the last one wins."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from pettingzoo import AECEnv

AGENTS = ("player_0", "player_1")
MOST = 3
"""Sticks that can be taken at once."""


class Nim(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Game of two agents in turn.

    Args:
        num_sticks: Sticks in the heap at first.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "nim_v0", "render_modes": []}

    def __init__(self, num_sticks: int = 12) -> None:
        super().__init__()
        self.possible_agents = list(AGENTS)
        self.num_sticks = num_sticks
        self.render_mode = None
        # Observe the heap as one-hot, and a mask of legal numbers of sticks; action k takes k + 1.
        heap, mask = Box(0.0, 1.0, (num_sticks + 1,), np.float32), Box(0, 1, (MOST,), np.int8)
        seen: dict[str, Space[Any]] = {"observation": heap, "action_mask": mask}
        # Each agent has its own space object, because sampling from a space seeds it.
        self._seen = {agent: Dict(seen) for agent in AGENTS}
        self._choices = {agent: Discrete(MOST) for agent in AGENTS}

    def observation_space(self, agent: str) -> Dict:
        """Return the space of what an agent sees."""
        return self._seen[agent]

    def action_space(self, agent: str) -> Discrete:
        """Return the space of its actions."""
        return self._choices[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin with a full heap. There is no chance in this game."""
        self.agents = list(AGENTS)
        self.agent_selection = AGENTS[0]
        self.left = self.num_sticks
        self.rewards: dict[str, float] = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards: dict[str, float] = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in AGENTS}

    def observe(self, agent: str) -> dict[str, Any]:
        """Return what an agent sees: both see the heap."""
        heap = np.zeros(self.num_sticks + 1, np.float32)
        heap[self.left] = 1.0
        mask = (np.arange(1, MOST + 1) <= self.left).astype(np.int8)
        return {"observation": heap, "action_mask": mask}

    def step(self, action: int | None) -> None:
        """Take sticks."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        other = AGENTS[1 - AGENTS.index(agent)]
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.left -= int(action) + 1
        if self.left == 0:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(AGENTS, True)
        self.agent_selection = other
        self._accumulate_rewards()


def env(num_sticks: int = 12) -> Nim:
    """Make the game: ``environment.id`` is ``nim:env``."""
    return Nim(num_sticks)
