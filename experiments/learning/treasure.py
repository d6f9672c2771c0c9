"""A grid-world of two populations whose reward is sparse: one opens a gate, one fetches.

An opener must stand on a switch while a fetcher stands on a treasure; only then both get 1, and the
episode is over. Treasure, switch and agents are drawn anew in each episode, in a square of ``size``
cells in a corner of a grid of 16; at full size, random play hardly ever succeeds in time.

Found by ``experiments.learning.treasure:parallel_env`` from the project's root.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

FULL = 16
AGENTS = ("fetcher", "opener")
MOVES = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])


class Treasure(ParallelEnv):  # type: ignore[misc]
    """The game.

    Args:
        size: Cells of a side of the square, 2 to 16.
    """

    metadata: dict[str, Any] = {"name": "treasure"}  # noqa: RUF012

    def __init__(self, size: int = FULL) -> None:
        if not 2 <= size <= FULL:
            raise ValueError(f"size must be 2 to {FULL}, got {size}")
        self.possible_agents = list(AGENTS)
        self._size = size
        # Twice the longest way, and a little: whoever wanders does not arrive in time.
        self._limit = 3 * size
        self._rng = np.random.default_rng()
        self._places = np.zeros((2, 2), np.int64)
        self._goals = np.zeros((2, 2), np.int64)
        self._step = 0

    def observation_space(self, agent: str) -> Box:
        """Return the space: own place and way to the goal, both of the other, and time left."""
        return Box(-1.0, 1.0, (9,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        """Return the space: stay, or go one of four ways."""
        return Discrete(len(MOVES))

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._places = self._rng.integers(0, self._size, (2, 2))
        self._goals = self._rng.integers(0, self._size, (2, 2))
        self._step = 0
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        """Move both at once."""
        moves = MOVES[[actions[agent] for agent in AGENTS]]
        self._places = np.clip(self._places + moves, 0, self._size - 1)
        self._step += 1
        is_done = bool((self._places == self._goals).all())
        is_late = self._step >= self._limit and not is_done
        if is_done or is_late:
            self.agents = []
        return (
            self._observations(),
            dict.fromkeys(AGENTS, float(is_done)),
            dict.fromkeys(AGENTS, is_done or is_late),
            dict.fromkeys(AGENTS, False),
            {agent: {"success": is_done} for agent in AGENTS},
        )

    def _observations(self) -> dict[str, Any]:
        ways = (self._goals - self._places) / FULL
        places = self._places / FULL
        late = [self._step / self._limit]
        return {
            agent: np.concatenate([places[i], ways[i], places[1 - i], ways[1 - i], late]).astype(
                np.float32
            )
            for i, agent in enumerate(AGENTS)
        }


def parallel_env(size: int = FULL) -> Treasure:
    """Make the game."""
    return Treasure(size)
