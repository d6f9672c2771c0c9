"""Two teams of two: mates that go to the same place score, unless the other team is there, too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
TEAMS = (AGENTS[:2], AGENTS[2:])
NUM_PLACES = 4
NUM_ROUNDS = 6


class Meeting(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Game of four agents that decide at once."""

    metadata: ClassVar[dict[str, Any]] = {"name": "meeting_v0", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self.render_mode = None
        # The observation has the last places of the agent, its mate and the opponents, then the
        # time.
        size = len(AGENTS) * NUM_PLACES + 1
        self._seen = {agent: Box(0.0, 1.0, (size,), np.float32) for agent in AGENTS}
        self._choices = {agent: Discrete(NUM_PLACES) for agent in AGENTS}

    def observation_space(self, agent: str) -> Box:
        """Return the space of what an agent sees."""
        return self._seen[agent]

    def action_space(self, agent: str) -> Discrete:
        """Return the places."""
        return self._choices[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with nobody anywhere."""
        self.agents = list(AGENTS)
        self._round = 0
        self._places = {agent: np.zeros(NUM_PLACES, np.float32) for agent in AGENTS}
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """Let all go, and count the teams that met alone."""
        places = np.eye(NUM_PLACES, dtype=np.float32)
        self._places = {agent: places[actions[agent]] for agent in AGENTS}
        met = [{int(actions[agent]) for agent in team} for team in TEAMS]
        rewards = dict.fromkeys(AGENTS, 0.0)
        for team, own, other in zip(TEAMS, met, met[::-1], strict=True):
            score = 1.0 if len(own) == 1 and own != other else 0.0
            rewards.update(dict.fromkeys(team, score))
        self._round += 1
        is_over = self._round == NUM_ROUNDS
        over = dict.fromkeys(AGENTS, is_over)
        self.agents = [] if is_over else list(AGENTS)
        infos: dict[str, Any] = {agent: {} for agent in AGENTS}
        return self._observations(), rewards, over, dict.fromkeys(AGENTS, False), infos

    def _observations(self) -> dict[str, Any]:
        time = np.array([self._round / NUM_ROUNDS], np.float32)
        seen = {}
        for team, others in (TEAMS, TEAMS[::-1]):
            for agent, mate in (team, team[::-1]):
                order = (agent, mate, *others)
                seen[agent] = np.concatenate([*(self._places[one] for one in order), time])
        return seen


def env() -> Meeting:
    """Make the game: ``environment.id`` is ``meeting:env``."""
    return Meeting()
