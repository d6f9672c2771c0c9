"""A PettingZoo environment whose step costs what it is told to, for measurements.

Found by id, ``experiments.speed.slow_environment:env``. Imports nothing of Arena, so that other
frameworks can be measured with it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ["player_0", "player_1"]
LENGTH = 50
OBSERVATION = spaces.Box(-1.0, 1.0, (8,), np.float32)
ACTION = spaces.Discrete(4)


class SlowEnvironment(ParallelEnv):  # type: ignore[misc]
    """Both see eight random numbers and are rewarded for an action that depends on them.

    Args:
        cost_ms: Cost of a step in ms.
        kind: ``spin`` computes for that long, measured in CPU time, so that a crowded core takes
            longer; ``sleep`` waits, as for a simulator elsewhere.
    """

    metadata = {"name": "slow", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, cost_ms: float = 5.0, kind: str = "spin") -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self._generator = np.random.default_rng()
        self._cost_s = cost_ms / 1000.0
        self._wait = {"spin": spin, "sleep": time.sleep}[kind]

    def observation_space(self, agent: str) -> Any:
        """Return the space of both."""
        return OBSERVATION

    def action_space(self, agent: str) -> Any:
        """Return the space of both."""
        return ACTION

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.agents, self._step = list(AGENTS), 0
        return self._observe(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        """Wait, then reward both."""
        self._wait(self._cost_s)
        rewards = {
            agent: float(np.argmax(self._seen[agent][:4]) == action)
            for agent, action in actions.items()
        }
        self._step += 1
        is_over = self._step == LENGTH
        observations = self._observe()
        self.agents = [] if is_over else list(AGENTS)
        return (
            observations,
            rewards,
            dict.fromkeys(AGENTS, is_over),
            dict.fromkeys(AGENTS, False),
            {agent: {} for agent in AGENTS},
        )

    def _observe(self) -> dict[str, Any]:
        rows = self._generator.uniform(-1.0, 1.0, (2, 8)).astype(np.float32)
        self._seen = dict(zip(AGENTS, rows, strict=True))
        return dict(self._seen)


def spin(duration_s: float) -> None:
    """Use a core for so much CPU time of this thread."""
    end_s = time.thread_time() + duration_s
    while time.thread_time() < end_s:
        pass


def env(**kwargs: Any) -> SlowEnvironment:
    """Make one."""
    return SlowEnvironment(**kwargs)
