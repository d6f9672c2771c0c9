"""A game of three sides: red has two agents, blue and green one each."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("red_0", "red_1", "blue_0", "green_0")
NUM_ROUNDS = 4
NUM_COLORS = 3


class Guess(ParallelEnv):  # type: ignore[misc]
    """Everybody sees a color and gains 1 by naming it. Seeds decide the colors."""

    metadata = {"name": "guess", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents: list[Any] = list(AGENTS)

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (NUM_COLORS,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(NUM_COLORS)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._step = 0
        return self._seen(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        rewards = {agent: float(actions[agent] == self._colors[agent]) for agent in AGENTS}
        self._step += 1
        is_over = self._step == NUM_ROUNDS
        self.agents = [] if is_over else list(AGENTS)
        over = dict.fromkeys(AGENTS, is_over)
        infos: dict[str, dict[str, object]] = {agent: {} for agent in AGENTS}
        return self._seen(), rewards, over, dict.fromkeys(AGENTS, False), infos

    def _seen(self) -> dict[str, Any]:
        self._colors = {agent: int(self._rng.integers(NUM_COLORS)) for agent in AGENTS}
        return {
            agent: np.eye(NUM_COLORS, dtype=np.float32)[color]
            for agent, color in self._colors.items()
        }
