"""Environments with several things wrong at once, for what `arena envs check` lists in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from pettingzoo import AECEnv, ParallelEnv

LENGTH = 8
MISTAKES = (
    "no_infos", "shape", "unseeded", "forgets", "nan", "raises", "mask", "large", "four",
    "no_flags", "stranger",
)  # fmt: skip


class AtOnce(ParallelEnv):  # type: ignore[misc]
    """Three agents who draw numbers; right but for the mistakes that are asked for.

    Args:
        mistakes: Some of `MISTAKES`.
        agents: Who is there.
    """

    def __init__(
        self, *, mistakes: Sequence[str] = (), agents: Sequence[str] = ("a_0", "a_1", "b_0")
    ) -> None:
        assert set(mistakes) <= set(MISTAKES)
        self.metadata = {"name": "mistakes"}
        self.possible_agents = list(agents)
        self._mistakes = frozenset(mistakes)
        self._rng, _ = np_random(0)
        self._step = 0
        self._seen: spaces.Space[Any] = spaces.Box(0.0, 1.0, (3,), np.float32)
        if "mask" in self._mistakes:
            masked = {"observation": self._seen, "action_mask": spaces.MultiBinary(3)}
            self._seen = spaces.Dict(masked)
        self._done = {agent: spaces.Discrete(3) for agent in agents}

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._done[agent]

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        if "unseeded" not in self._mistakes:
            self._rng, _ = np_random(seed)
        self.agents = list(self.possible_agents)
        self._step = 0
        if "no_infos" in self._mistakes:
            return self._observations()
        return self._observations(), {agent: {} for agent in self.agents}

    def _observations(self) -> dict[str, Any]:
        numbers = 4 if "shape" in self._mistakes else 3
        rng = np.random.default_rng() if "unseeded" in self._mistakes else self._rng
        seen = {agent: rng.random(numbers).astype(np.float32) for agent in self.possible_agents}
        if "mask" not in self._mistakes:
            return seen
        # One number is missing, so the legal actions are unknown.
        return {
            agent: {"observation": values, "action_mask": np.ones(2, np.int8)}
            for agent, values in seen.items()
        }

    def step(self, actions: dict[str, int]) -> Any:
        self._step += 1
        # The wrong mask allows any action, also one that the right mask forbids.
        if "mask" in self._mistakes and actions["a_0"] == 2:
            raise IndexError("a consequence")
        if "raises" in self._mistakes and self._step == 4:
            self._refuse()
        size = 12.0 if "large" in self._mistakes else 1.0
        rewards = {agent: size * self._rng.choice((-1, 1)) for agent in self.agents}
        if "nan" in self._mistakes and self._step == 3:
            rewards["b_0"] = float("nan")
        if "forgets" in self._mistakes and self._step == 2:
            del rewards["a_1"]
        if "stranger" in self._mistakes:
            rewards["c_9"] = 0.5
        terminations: dict[str, Any] = dict.fromkeys(self.agents, False)
        truncations = dict.fromkeys(self.agents, self._step == LENGTH)
        infos: dict[str, dict[str, object]] = {agent: {} for agent in self.agents}
        if self._step == LENGTH:
            self.agents = []
        if "no_flags" in self._mistakes:
            terminations = dict.fromkeys(terminations, None)
        if "four" in self._mistakes:
            return self._observations(), rewards, truncations, infos
        return self._observations(), rewards, terminations, truncations, infos

    def _refuse(self) -> None:
        raise KeyError("no such move")


class Nan(AtOnce):
    """One reward is no number."""

    def __init__(self) -> None:
        super().__init__(mistakes=["nan"])


class NoReset(AtOnce):
    """It raises in ``reset``."""

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        raise RuntimeError("there is no map")


class NoClose(AtOnce):
    """Right but for ``close``, which it does not have, as where nothing was inherited."""

    def __getattribute__(self, name: str) -> Any:
        if name == "close":
            raise AttributeError("'NoClose' object has no attribute 'close'")
        return super().__getattribute__(name)


class Hanging(AtOnce):
    """Never returns, whatever is raised in it."""

    def step(self, actions: dict[str, int]) -> Any:
        while True:
            try:
                self._step += 1
            except Exception:
                continue


class InTurns(AECEnv):  # type: ignore[misc]
    """Two agents in turn, with four mistakes."""

    def __init__(self) -> None:
        self.metadata = {"name": "in_turns"}
        self.possible_agents = ["a", "b"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        # The second agent has no infos.
        self.infos: dict[str, Any] = {"a": {}}
        self.agent_selection = "a"
        self._step = 0

    def observe(self, agent: str) -> Any:
        # Text is not numeric, and the random numbers are not seeded.
        return np.array(["x", "y"]) if agent == "b" else np.random.default_rng().random(2)

    def step(self, action: int | None) -> None:
        self._step += 1
        if self._step == 5:
            self.rewards["a"] = float("inf")
        if self._step == 6:
            raise RuntimeError("tired")
        self.agent_selection = self.possible_agents[self._step % 2]
