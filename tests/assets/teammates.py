"""A game of two against two in which partners gain by differing, and runs of it.

The agents of a side get a point in each round in which they act differently. They are told nothing
of who is who, so the best partner of a policy is one that differs from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

ROUNDS, CONTEXTS = 16, 4
AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
PARTNER = {"red_0": "red_1", "red_1": "red_0", "blue_0": "blue_1", "blue_1": "blue_0"}
NOTHING = 2
"""Last action of an agent that has not acted yet."""


class Roles(ParallelEnv):  # type: ignore[misc]
    """The game: partners get a point for each round in which their actions differ."""

    metadata: dict[str, Any] = {"name": "roles"}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self._rng = np.random.default_rng()
        self._last = dict.fromkeys(AGENTS, NOTHING)
        self._context = 0
        self._round = 0

    def observation_space(self, agent: str) -> Box:
        """Return the space: last action of oneself and of the partner, and the context."""
        return Box(0.0, 1.0, (3 + 3 + CONTEXTS,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        """Return the space: one of two roles."""
        return Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._last = dict.fromkeys(AGENTS, NOTHING)
        self._round = 0
        self._context = int(self._rng.integers(CONTEXTS))
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        """Play a round."""
        self._last = {agent: int(actions[agent]) for agent in AGENTS}
        self._round += 1
        self._context = int(self._rng.integers(CONTEXTS))
        is_over = self._round == ROUNDS
        if is_over:
            self.agents = []
        return (
            self._observations(),
            {a: float(self._last[a] != self._last[PARTNER[a]]) / ROUNDS for a in AGENTS},
            dict.fromkeys(AGENTS, is_over),
            dict.fromkeys(AGENTS, False),
            {agent: {} for agent in AGENTS},
        )

    def _observations(self) -> dict[str, Any]:
        return {
            agent: np.concatenate(
                [
                    np.eye(3, dtype=np.float32)[self._last[agent]],
                    np.eye(3, dtype=np.float32)[self._last[PARTNER[agent]]],
                    np.eye(CONTEXTS, dtype=np.float32)[self._context],
                ]
            )
            for agent in AGENTS
        }


def parallel_env() -> Roles:
    """Make the game."""
    return Roles()


def document(teammates: str, *, seed: int, size: int, agent_steps: int) -> dict[str, object]:
    """Return the configuration of a run."""
    return {
        "seed": seed,
        "environment": {
            "id": "tests.assets.teammates:parallel_env",
            "num_envs": 64,
            "sides": {"red": ["red_*"], "blue": ["blue_*"]},
        },
        "populations": {
            "player": {
                "agents": ["*"],
                "size": size,
                "network": {"hidden_sizes": [32]},
                "hyperparameters": {
                    "rollout_length": 16,
                    "learning_rate": 3e-3,
                    "gamma": 0.9,
                    "entropy_coef": 0.01,
                },
                "search_space": {},
            }
        },
        "matchmaking": {
            "teammates": teammates,
            "kind": "uniform",
            "opponents": 8,
            # Living partners are needed, because ghosts of the beginning know no rule yet.
            "latest_ratio": 0.25,
            "living_ratio": 0.5,
        },
        "pbt": {"exploit": "none", "explore": "none"},
        "ghosts": {"every_agent_steps": max(agent_steps // 8, 1)},
        "assignment": {"agent_steps": 4096},
        "evaluation": {"share": 0.05},
        "launcher": "inline",
        "deterministic": True,
        "stop": {"agent_steps_per_policy": agent_steps},
    }
