"""A T-maze: a sign at the start says on which side the prize is, and is not seen again.

Two agents, each in a maze of its own, at once. Who turns into the right arm wins 1, who does not
loses 1. The way to the junction is of random length, so that counting steps tells nothing.
Bakker, "Reinforcement Learning with Long Short-Term Memory" (NeurIPS 2001).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import ParallelEnv

LEFT, RIGHT, FORWARD = range(3)
BUMP = -0.1
"""For turning in the corridor and for walking on at the junction."""


class TMaze(ParallelEnv):  # type: ignore[misc]
    """An agent sees three numbers: the sign (-1 or 1 at the start, else 0), whether it is at the
    start, and whether it is at the junction.

    Args:
        shortest: Steps to the junction, at least.
        longest: At most.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "t_maze", "render_modes": []}

    def __init__(self, shortest: int = 2, longest: int = 5) -> None:
        self.possible_agents = ["left", "right"]
        self._shortest, self._longest = shortest, longest
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Box:
        """Of both alike."""
        return spaces.Box(-1.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        """LEFT, RIGHT, FORWARD."""
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """New signs and new corridors."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._num_steps = 0
        self._place = dict.fromkeys(self.agents, 0)
        self._length = {
            agent: int(self._rng.integers(self._shortest, self._longest + 1))
            for agent in self.agents
        }
        self._prize = {agent: int(self._rng.integers(2)) for agent in self.agents}
        return {agent: self._seen(agent) for agent in self.agents}, {a: {} for a in self.agents}

    def _seen(self, agent: str) -> npt.NDArray[np.float32]:
        at_start = self._place[agent] == 0
        at_junction = self._place[agent] == self._length[agent]
        sign = (2 * self._prize[agent] - 1) if at_start else 0
        return np.array([sign, at_start, at_junction], dtype=np.float32)

    def step(self, actions: dict[str, int]) -> Any:
        """Who has turned at the junction is done; who takes too long is cut off."""
        self._num_steps += 1
        reward = {agent: self._walk(agent, int(actions[agent])) for agent in self.agents}
        terminated = {agent: abs(reward[agent]) == 1.0 for agent in self.agents}
        late = self._num_steps >= 4 * self._longest
        truncated = {agent: late and not terminated[agent] for agent in self.agents}
        seen = {agent: self._seen(agent) for agent in self.agents}
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agents = [a for a in self.agents if not (terminated[a] or truncated[a])]
        return seen, reward, terminated, truncated, infos

    def _walk(self, agent: str, action: int) -> float:
        at_junction = self._place[agent] == self._length[agent]
        if at_junction and action != FORWARD:
            return 1.0 if action == self._prize[agent] else -1.0
        if at_junction or action != FORWARD:
            return BUMP
        self._place[agent] += 1
        return 0.0
