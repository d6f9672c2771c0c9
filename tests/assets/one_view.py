"""Prisoner and guard on a grid: opposite tasks, equal spaces, the same observation.

So is the environment of PettingZoo's own tutorial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec

SIZE = 7
MAX_STEPS = 100
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
START = {"prisoner": (0, 0), "guard": (SIZE - 1, SIZE - 1)}


class Prison(ParallelEnv):  # type: ignore[misc]
    """The guard wins where it catches the prisoner, the prisoner at the exit."""

    def __init__(self) -> None:
        self.metadata = {"name": "prison_v0", "render_modes": []}
        self.possible_agents = list(START)
        self._seen, self._done = spaces.MultiDiscrete([SIZE**2] * 3), spaces.Discrete(len(MOVES))

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._done

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        rng = np.random.default_rng(seed)
        self.agents, self._steps, self._at = list(START), 0, dict(START)
        self._exit = tuple(int(x) for x in rng.integers(2, 6, size=2))
        return self._views(), {agent: {} for agent in self.agents}

    def _views(self) -> dict[str, Any]:
        places = (*self._at.values(), self._exit)
        view = np.array([x + SIZE * y for x, y in places])
        return {agent: view.copy() for agent in START}

    def step(self, actions: Mapping[str, int]) -> Any:
        for agent, action in actions.items():
            moved = np.add(self._at[agent], MOVES[action]).clip(0, SIZE - 1)
            self._at[agent] = (int(moved[0]), int(moved[1]))
        self._steps += 1
        is_caught = self._at["prisoner"] == self._at["guard"]
        is_free = self._at["prisoner"] == self._exit and not is_caught
        is_over = is_caught or is_free
        is_late = self._steps >= MAX_STEPS and not is_over
        pay = float(is_free) - float(is_caught)
        self.agents = [] if is_over or is_late else self.agents
        return (
            self._views(),
            {"prisoner": pay, "guard": -pay},
            dict.fromkeys(START, is_over),
            dict.fromkeys(START, is_late),
            {agent: {} for agent in START},
        )


def in_turns() -> AECEnv:
    """The same, one after the other."""
    return parallel_to_aec(Prison())


class OwnView(Prison):
    """The same, but each sees itself first."""

    def _views(self) -> dict[str, Any]:
        views = super()._views()
        views["guard"] = views["guard"][[1, 0, 2]]
        return views
