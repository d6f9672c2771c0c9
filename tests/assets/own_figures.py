"""Two tiny games that report figures of their own, and may report them wrongly.

An episode has four rounds: two turns of each agent, or four actions of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

AGENTS = ("a", "b")
NUM_ROUNDS = 4
OBSERVATION = spaces.Box(0.0, 10.0, (2,))
ACTION = spaces.Discrete(2)

BAD: dict[Any, Any] = {
    "no_number": "far",
    "not_finite": float("nan"),
    "infinite": float("inf"),
    "too_large": 10**400,
    "a mess\n": 1.0,
    "nothing": None,
    7: 1.0,
}


class FiguresInTurns(AECEnv):  # type: ignore[misc]
    """Agents take turns; each reports its sum of actions, and whether that is not 0.

    Args:
        bad: Whether to report what nobody can use, too.
        crowd: How many more names are reported.
    """

    metadata = {"name": "figures_in_turns", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(self, *, bad: bool = False, crowd: int = 0) -> None:
        self.possible_agents: list[Any] = list(AGENTS)
        self._bad = bad
        self._crowd = crowd
        self._figures: dict[str, dict[Any, Any]] = {agent: {} for agent in AGENTS}

    def observation_space(self, agent: str) -> Any:
        return OBSERVATION

    def action_space(self, agent: str) -> Any:
        return ACTION

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = list(AGENTS)
        self.agent_selection = AGENTS[0]
        self._at = 0
        self.rewards: dict[str, Any] = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards: dict[str, Any] = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        for figures in self._figures.values():
            figures.clear()  # metrics of the last episode must have been read by now
            figures.update(sum=-100.0)
        self.infos: dict[str, dict[str, Any]] = {
            agent: {"metrics": self._figures[agent]} for agent in AGENTS
        }

    def observe(self, agent: str) -> Any:
        return np.array([self._at, AGENTS.index(agent)], dtype=np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        figures = self._figures[agent]
        figures["sum"] = (0 if figures["sum"] < 0 else figures["sum"]) + np.int64(action)
        figures["lucky"] = figures["sum"] >= 1
        figures.update(BAD if self._bad else {})
        figures.update({f"crowd_{number}": number for number in range(self._crowd)})
        self._at += 1
        is_over = self._at == NUM_ROUNDS
        self.terminations = dict.fromkeys(AGENTS, is_over)
        self.agent_selection = AGENTS[self._at % 2]


class FiguresAtOnce(ParallelEnv):  # type: ignore[misc]
    """Both act; each reports its sum of actions.

    Args:
        reported: Reported instead.
        success: Reported beside it at an episode's end; null: nothing is.
    """

    metadata = {"name": "figures_at_once", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, reported: object = None, success: object = None) -> None:
        self.possible_agents: list[Any] = list(AGENTS)
        self._reported = reported
        self._success = success

    def observation_space(self, agent: str) -> Any:
        return OBSERVATION

    def action_space(self, agent: str) -> Any:
        return ACTION

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self.agents = list(AGENTS)
        self._step = 0
        self._sums = [0, 0]
        return self._seen(), {agent: {"metrics": {"sum": -100.0}} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        self._step += 1
        infos: dict[str, Any] = {}
        for index, agent in enumerate(AGENTS):
            self._sums[index] += int(actions[agent])
            own = {"sum": self._sums[index]}
            infos[agent] = {"metrics": own if self._reported is None else self._reported}
        is_over = self._step == NUM_ROUNDS
        if is_over and self._success is not None:
            for info in infos.values():
                info["success"] = self._success
        self.agents = [] if is_over else list(AGENTS)
        over = dict.fromkeys(AGENTS, is_over)
        return self._seen(), dict.fromkeys(AGENTS, 0.0), over, dict.fromkeys(AGENTS, False), infos

    def _seen(self) -> dict[str, Any]:
        return {
            agent: np.array([self._step, index], dtype=np.float32)
            for index, agent in enumerate(AGENTS)
        }

    def close(self) -> None:
        pass
