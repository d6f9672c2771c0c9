"""Environments with one thing wrong, for what `arena envs check` says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from environments import (  # type: ignore[import-not-found]  # this directory is the launch one
    CLOCKWORK,
    NUM_ACTIONS,
    ScriptedParallel,
    ScriptedTurns,
)
from gymnasium import spaces

PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class RefusesTheLastAction(ScriptedTurns):  # type: ignore[misc]
    """Its space has three actions, of which it knows two."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 6)

    def step(self, action: int | None) -> None:
        if action is not None:
            ("left", "right")[action]
        super().step(action)


class ForgetsAnAgent(ScriptedParallel):  # type: ignore[misc]
    """Who has acted hears nothing of it."""

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        observations, rewards, *rest = super().step(actions)
        if self._at == 2:
            del rewards["b"]
        return observations, rewards, *rest


class NeverEnds(ScriptedTurns):  # type: ignore[misc]
    """Starts its script again and again, and pays nothing, but for what is asked for."""

    def __init__(self, *, ends: bool = False, pays: bool = False) -> None:
        super().__init__(script=CLOCKWORK * 2)
        self._ends, self._pays = ends, pays

    def step(self, action: int | None) -> None:
        super().step(action)
        if not self._pays:
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)

    def _select(self) -> None:
        if not self._ends:
            self._at %= len(self._script)
        super()._select()


class TakesOutTheLoser(ScriptedTurns):  # type: ignore[misc]
    """Takes agents out of ``agents`` in the step that ends them, and not in their own turn."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 2)

    def _select(self) -> None:
        super()._select()
        if self._at == 3:
            self.terminations = dict.fromkeys(self.possible_agents, True)
            self.agents = [agent for agent in self.possible_agents if agent != self.agent_selection]


class RenamesTheMask(ScriptedTurns):  # type: ignore[misc]
    """Calls its action mask ``legal``, in its space, too, or in observations alone."""

    def __init__(self, *, in_space: bool) -> None:
        super().__init__(script=CLOCKWORK * 2)
        self._name = "legal" if in_space else "action_mask"

    def observation_space(self, agent: str) -> Any:
        mask = spaces.MultiBinary(NUM_ACTIONS)
        return spaces.Dict({"observation": super().observation_space(agent), self._name: mask})

    def observe(self, agent: str) -> Any:
        legal = np.ones(NUM_ACTIONS, dtype=np.int8)
        return {"observation": super().observe(agent), "legal": legal}


class HasNoSpaces(ScriptedTurns):  # type: ignore[misc]
    """Has a method that looks spaces up where there are none."""

    def observation_space(self, agent: str) -> Any:
        return dict[str, Any]()[agent]


class NeverDrawn(ScriptedParallel):  # type: ignore[misc]
    """Its pictures stay black."""

    def observation_space(self, agent: str) -> Any:
        return PICTURE

    def _observations(self, agents: Sequence[str]) -> dict[str, Any]:
        return {agent: np.zeros((8, 8, 3), np.uint8) for agent in agents}


class AsymmetricTeams(ScriptedParallel):  # type: ignore[misc]
    """The hunters always receive the same, their prey something else."""

    def __init__(self) -> None:
        super().__init__(agents=("hunter_0", "hunter_1", "prey_0"), script=({},) * 4)

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        observations, rewards, *rest = super().step(actions)
        caught = float(rewards["prey_0"] == 0)
        rewards.update(hunter_0=caught, hunter_1=caught, prey_0=-caught)
        return observations, rewards, *rest


def divides(returns: dict[str, float], infos: object) -> dict[str, float]:
    """An outcome with a bug."""
    return {"a": returns["a"] / returns["b"], "b": 0.0}


def says_who_wins(returns: dict[str, float], infos: object) -> dict[str, str]:
    """An outcome in words."""
    return {"a": "won", "b": "lost"}
