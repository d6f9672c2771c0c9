"""A game of two sides that cannot be swapped: a seeker, and two hiders who see something else."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("seeker_0", "hider_0", "hider_1")
NUM_ROUNDS = 5
NUM_PLACES = 3


class Hide(ParallelEnv):  # type: ignore[misc]
    """The seeker gains 1 for each hider in the place where it looks, and that hider loses 1."""

    metadata = {"name": "hide", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents: list[Any] = list(AGENTS)

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (1 if agent == "seeker_0" else 2,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(NUM_PLACES)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        del seed, options
        self.agents = list(AGENTS)
        self._step = 0
        return self._seen(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        found = {hider: float(actions[hider] == actions["seeker_0"]) for hider in AGENTS[1:]}
        rewards = {"seeker_0": sum(found.values()), **{name: -f for name, f in found.items()}}
        self._step += 1
        is_over = self._step == NUM_ROUNDS
        self.agents = [] if is_over else list(AGENTS)
        over = dict.fromkeys(AGENTS, is_over)
        infos: dict[str, dict[str, object]] = {agent: {} for agent in AGENTS}
        return self._seen(), rewards, over, dict.fromkeys(AGENTS, False), infos

    def _seen(self) -> dict[str, Any]:
        time = self._step / NUM_ROUNDS
        return {
            agent: np.full(self.observation_space(agent).shape, time, dtype=np.float32)
            for agent in AGENTS
        }
