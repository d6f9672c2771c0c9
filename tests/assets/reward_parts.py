"""Two tiny games whose rewards are sums of parts that they report.

All parts are multiples of 1/4, so sums are exact. An action is 0 or 1; an observation is (step,
index of the agent).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

AGENTS = ("a", "b")
NUM_ROUNDS = 4
OBSERVATION = spaces.Box(0.0, 10.0, (2,))
ACTION = spaces.Discrete(2)


def win(sums: Sequence[int], index: int) -> float:
    """1 to the agent with the higher sum of actions, -1 to the other."""
    return float(np.sign(sums[index] - sums[1 - index]))


class PartsAtOnce(ParallelEnv):  # type: ignore[misc]
    """Both act; ``near`` is a quarter of an agent's action, ``win`` comes with the last step.

    Args:
        hidden: A part that is in the reward of ``b`` and never reported to it.
        broken: Report text in the place of a number.
    """

    metadata = {"name": "parts_at_once", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, hidden: str | None = None, *, broken: bool = False) -> None:
        self.possible_agents: list[Any] = list(AGENTS)
        self._hidden = hidden
        self._broken = broken

    def observation_space(self, agent: str) -> Any:
        return OBSERVATION

    def action_space(self, agent: str) -> Any:
        return ACTION

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self.agents = list(AGENTS)
        self._step = 0
        self._sums = [0, 0]
        # Reward components of a reset belong to no step, so they must be ignored.
        return self._seen(), {agent: {"reward_components": {"near": 100.0}} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        self._step += 1
        for index, agent in enumerate(AGENTS):
            self._sums[index] += int(actions[agent])
        is_over = self._step == NUM_ROUNDS
        rewards, infos = {}, {}
        for index, agent in enumerate(AGENTS):
            parts: dict[str, Any] = {
                "near": 0.25 * actions[agent],
                "win": win(self._sums, index) if is_over else 0.0,
            }
            rewards[agent] = sum(parts.values())
            if agent == "b" and self._hidden is not None:
                parts.pop(self._hidden)
            if self._broken:
                parts["near"] = "a lot"
            infos[agent] = {"reward_components": {**parts, "unlisted": 1000.0}}
        self.agents = [] if is_over else list(AGENTS)
        over = dict.fromkeys(AGENTS, is_over)
        return self._seen(), rewards, over, dict.fromkeys(AGENTS, False), infos

    def _seen(self) -> dict[str, Any]:
        return {
            agent: np.array([self._step, index], dtype=np.float32)
            for index, agent in enumerate(AGENTS)
        }

    def close(self) -> None:
        pass


class PartsInTurns(AECEnv):  # type: ignore[misc]
    """Agents take turns, two each; an action of 1 is worth 1/4 (``near``) and costs the other 1/2.

    The other is told ``pressed`` only when it costs something; else its info stays as it was. The
    last turn brings ``win``.

    Args:
        in_place: Change what was reported before, which is against the rules.
    """

    metadata = {"name": "parts_in_turns", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(self, *, in_place: bool = False) -> None:
        self.possible_agents: list[Any] = list(AGENTS)
        self._in_place = in_place

    def observation_space(self, agent: str) -> Any:
        return OBSERVATION

    def action_space(self, agent: str) -> Any:
        return ACTION

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = list(AGENTS)
        self.agent_selection = AGENTS[0]
        self._at = 0
        self._sums = [0, 0]
        self.rewards: dict[str, Any] = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards: dict[str, Any] = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos: dict[str, dict[str, Any]] = {
            agent: {"reward_components": {"near": 100.0, "win": 0.0, "pressed": 0.0}}
            for agent in AGENTS
        }

    def observe(self, agent: str) -> Any:
        return np.array([self._at, AGENTS.index(agent)], dtype=np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        index = AGENTS.index(agent)
        other = AGENTS[1 - index]
        self._at += 1
        self._sums[index] += int(action)
        is_over = self._at == NUM_ROUNDS
        self._cumulative_rewards[agent] = 0.0
        wins = {name: win(self._sums, AGENTS.index(name)) if is_over else 0.0 for name in AGENTS}
        own = {"near": 0.25 * action, "pressed": 0.0, "win": wins[agent]}
        others = {"pressed": -0.5 * action, "win": wins[other]}
        self.rewards = {agent: sum(own.values()), other: sum(others.values())}
        self._report(agent, own)
        if self.rewards[other]:
            self._report(other, others)
        self._accumulate_rewards()
        self.terminations = dict.fromkeys(AGENTS, is_over)
        self.agent_selection = other

    def _report(self, agent: str, parts: dict[str, float]) -> None:
        if self._in_place:
            self.infos[agent]["reward_components"].update(parts)
        else:
            self.infos[agent] = {"reward_components": parts}

    def close(self) -> None:
        pass


def turns_at_once() -> Any:
    """The second game as PettingZoo makes it a Parallel one."""
    return aec_to_parallel(PartsInTurns())


def at_once_in_turns() -> Any:
    """The first game as PettingZoo makes it take turns: its infos stay while others act."""
    return parallel_to_aec(PartsAtOnce())
