"""Environments in which every decision is marked, and which write down what became of it.

Agents appear late, die early, are cut off, and take turns in any order, twice in a row too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

AGENTS = ("a", "b", "c", "d")
MAX_STEPS = 12

MADE: list[Any] = []
"""All environments, in the order in which they were made."""

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "box": spaces.Box(-1.0, 2.0, (2,), np.float32),
    "dict": spaces.Dict(
        {
            "pick": spaces.Discrete(3),
            "move": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "flags": spaces.MultiBinary(2),
        }
    ),
}
MARK = spaces.Dict({"who": spaces.Discrete(len(AGENTS)), "mark": spaces.Box(0, 2**20, (2,))})


@dataclass
class Logged:
    """One decision as the environment saw it, and what the agent received until its next one."""

    agent: str
    mark: tuple[int, int]
    action: Any
    mask: list[bool] | None
    before: tuple[int, int] | None
    """Mark of the agent's decision before it in this episode."""
    earned: float = 0.0
    episode: int = 0


class Marked:
    """What both kinds of environment have in common."""

    metadata: ClassVar[dict[str, Any]] = {"name": "payloads", "render_modes": []}

    def __init__(self, form: str) -> None:
        self.form = form
        self.index = len(MADE)
        MADE.append(self)
        self.possible_agents = list(AGENTS)
        self.log: list[Logged] = []
        self.latest: dict[str, Logged] = {}
        self.count = self.episode = 0
        self.ends: dict[tuple[int, str], tuple[int, str]] = {}
        self.happened: Counter[str] = Counter()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Masks are in the observation, beside it, in info or nowhere, by the form of actions."""
        if self.form == "multi_discrete":
            mask = spaces.Tuple((spaces.MultiBinary(2), spaces.MultiBinary(3)))
            return spaces.Dict({"observation": MARK, "action_mask": mask})
        if self.form == "dict":
            mask_of: dict[str, spaces.Space[Any]] = {
                "pick": spaces.MultiBinary(3),
                "flags": spaces.MultiBinary([2, 2]),
            }
            return spaces.Dict({**MARK.spaces, "action_mask": spaces.Dict(mask_of)})
        return MARK

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Of all agents alike."""
        return ACTIONS[self.form]

    def begin(self, seed: int | None) -> None:
        """Two agents are there from the start."""
        self.rng = np.random.default_rng(seed)
        self.episode += 1
        order = self.rng.permutation(AGENTS).tolist()
        self.agents, self.late = order[:2], order[2:]
        self.latest = {}
        self.num_steps = 0

    def masks(self, agent: str) -> list[np.ndarray[Any, Any]]:
        """By category, drawn from the mark: the same whenever one looks."""
        rng = np.random.default_rng([self.index, self.count, AGENTS.index(agent)])
        sizes = {"discrete": [5], "multi_discrete": [2, 3], "box": [], "dict": [2, 2, 3]}
        masks = [rng.integers(0, 2, size=size).astype(np.int8) for size in sizes[self.form]]
        for mask in masks:
            mask[rng.integers(len(mask))] = 1
        return masks

    def seen(self, agent: str) -> Any:
        """Who it is, which environment, and which step."""
        marked = {
            "who": np.int64(AGENTS.index(agent)),
            "mark": np.array([self.index, self.count], dtype=np.float32),
        }
        masks = self.masks(agent)
        if self.form == "multi_discrete":
            return {"observation": marked, "action_mask": tuple(masks)}
        if self.form == "dict":
            flags = np.stack(masks[:2])
            return {**marked, "action_mask": {"pick": masks[2], "flags": flags}}
        return marked

    def state(self) -> Any:
        """Which environment and which step."""
        return np.array([self.index, self.count], dtype=np.float64)

    def info(self, agent: str) -> dict[str, Any]:
        """With the mask where it is there."""
        return {"action_mask": self.masks(agent)[0]} if self.form == "discrete" else {}

    def note(self, agent: str, action: Any) -> None:
        """Write a decision down."""
        assert self.action_space(agent).contains(action), action
        masks = self.masks(agent)
        mask = np.concatenate(masks).astype(bool).tolist() if masks else None
        before = self.latest[agent].mark if agent in self.latest else None
        decision = Logged(
            agent, (self.index, self.count), action, mask, before, episode=self.episode
        )
        self.log.append(decision)
        self.latest[agent] = decision

    def rewards_now(self) -> dict[str, float]:
        """Some of those who are there and have decided receive something."""
        rewards = {agent: 0.0 for agent in self.agents}
        for agent in self.agents:
            if agent in self.latest and self.rng.random() < 0.6:
                rewards[agent] = float(self.rng.integers(1, 100))
                self.latest[agent].earned += rewards[agent]
        return rewards

    def fates(self) -> tuple[dict[str, bool], dict[str, bool]]:
        """Who ends now."""
        terminated = {agent: bool(self.rng.random() < 0.08) for agent in self.agents}
        over = self.num_steps >= MAX_STEPS
        truncated = {agent: over or bool(self.rng.random() < 0.08) for agent in self.agents}
        for agent in self.agents:
            if terminated[agent] or truncated[agent]:
                how = "terminated" if terminated[agent] else "truncated"
                self.ends[self.episode, agent] = self.count, how
        self.happened["terminated"] += sum(terminated.values())
        self.happened["truncated"] += 0 if over else sum(truncated.values())
        return terminated, truncated

    def comers(self) -> list[str]:
        """Who appears now."""
        if self.late and self.rng.random() < 0.3:
            self.happened["late"] += 1
            return [self.late.pop()]
        return []

    def close(self) -> None:
        """Nothing is held."""


class Turns(Marked, AECEnv):  # type: ignore[misc]
    """One after the other, drawn at random: the same agent may be on turn again."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Start an episode."""
        self.begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = self.agents[0]
        self.infos = {agent: self.info(agent) for agent in self.agents}

    def observe(self, agent: str) -> Any:
        """See `Marked.seen`."""
        return self.seen(agent)

    def step(self, action: Any) -> None:
        """One turn."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.note(agent, action)
        self.count += 1
        self.num_steps += 1
        self.rewards = self.rewards_now()
        self.terminations, self.truncations = self.fates()
        for comer in self.comers():
            self.agents.append(comer)
            self.rewards[comer] = self._cumulative_rewards[comer] = 0.0
            self.terminations[comer] = self.truncations[comer] = False
        alive = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])]
        self.infos = {agent: self.info(agent) for agent in self.agents}
        if alive:
            self.agent_selection = str(self.rng.choice(alive))
        self._deads_step_first()


class AtOnce(Marked, ParallelEnv):  # type: ignore[misc]
    """All who are there."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode."""
        self.begin(seed)
        self.count += 1
        return (
            {agent: self.seen(agent) for agent in self.agents},
            {agent: self.info(agent) for agent in self.agents},
        )

    def step(self, actions: dict[str, Any]) -> Any:
        """One step of all."""
        assert set(actions) == set(self.agents)
        for agent, action in actions.items():
            self.note(agent, action)
        self.count += 1
        self.num_steps += 1
        rewards = self.rewards_now()
        terminated, truncated = self.fates()
        for comer in self.comers():
            self.agents.append(comer)
            rewards[comer], terminated[comer], truncated[comer] = 0.0, False, False
        observations = {agent: self.seen(agent) for agent in self.agents}
        infos = {agent: self.info(agent) for agent in self.agents}
        self.agents = [a for a in self.agents if not (terminated[a] or truncated[a])]
        return observations, rewards, terminated, truncated, infos
