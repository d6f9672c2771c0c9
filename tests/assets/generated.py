"""PettingZoo's examples of agents made as the game goes, with one size for what all see and do.

They draw new sizes in every episode, and name no possible agents.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

with warnings.catch_warnings():
    # Importing PettingZoo's tests causes a warning of PettingZoo itself.
    warnings.simplefilter("ignore")
    from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0

SEES, DOES = 50, 10
"""The largest sizes that they draw."""


class Padded:
    """What both have in common: zeros beyond an agent's own size, and masks of its own actions."""

    _obs_spaces: dict[str, spaces.Box]
    _act_spaces: dict[str, spaces.Discrete]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Of everyone."""
        return spaces.Box(0.0, 1.0, (SEES,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Of everyone."""
        return spaces.Discrete(DOES)

    def observe(self, agent: str) -> Any:
        """A sample of the agent's own space, then zeros."""
        own = self._obs_spaces[agent.rpartition("_")[0]].sample()
        return np.concatenate([own, np.zeros(SEES - len(own), dtype=np.float32)])

    def info(self, agent: str) -> dict[str, Any]:
        """Which actions are its own."""
        own = self._act_spaces[agent.rpartition("_")[0]]
        return {"action_mask": (np.arange(DOES) < own.n).astype(np.int8)}


class Turns(Padded, generated_agents_env_v0.raw_env):  # type: ignore[misc]
    """One after the other."""

    def add_agent(self, type: str) -> Any:
        """With a mask in its info."""
        agent = super().add_agent(type)
        self.infos[agent] = self.info(agent)
        return agent


class AtOnce(Padded, generated_agents_parallel_v0.parallel_env):  # type: ignore[misc]
    """All at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """With masks in infos."""
        observations, _ = super().reset(seed=seed, options=options)
        return observations, {agent: self.info(agent) for agent in observations}

    def step(self, actions: dict[str, Any]) -> Any:
        """With masks in infos. The example counts no steps, and would never end."""
        self.num_steps += 1
        *told, infos = super().step(actions)
        return *told, {agent: self.info(agent) for agent in infos}
