"""Cooperative Pong from small grey pictures, as a user would wrap it.

PettingZoo's own (``cooperative_pong-v6`` of 1.27) shows black pictures without
``render_mode="rgb_array"``; with it, each step copies the whole screen a dozen times. So this is
its game, with its rules, behind a picture that is drawn once for each decision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pygame
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.utils.seeding import np_random
from pettingzoo import ParallelEnv
from pettingzoo.butterfly.cooperative_pong.cooperative_pong import CooperativePong

EVERY = 10
"""Rows and columns of which one is kept: a ball is as wide, so one pixel shows it."""

PICTURE: Space[Any] = Box(0, 255, (28, 48, 1), np.uint8)
MOVE: Space[Any] = Discrete(3)


class PongPictures(ParallelEnv[str, npt.NDArray[np.uint8], int]):  # type: ignore[misc]
    """Two paddles keep a ball in play; each action is taken for some frames.

    Observations: uint8 [28, 48, 1], the same for both. Rewards: the sum over the frames.

    Args:
        frames: Of the game, for each decision.
        arguments: Of `CooperativePong`.
    """

    metadata = {"name": "pong_pictures_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, *, frames: int = 3, **arguments: Any) -> None:
        self.possible_agents = ["paddle_0", "paddle_1"]
        self.agents: list[str] = []
        self._frames = frames
        self._arguments = arguments
        self._seed(None)

    def _seed(self, seed: int | None) -> None:
        randomizer, _ = np_random(seed)
        self._game = CooperativePong(randomizer, **self._arguments)
        self._game.render = lambda: None  # the picture is drawn when it is observed

    def observation_space(self, agent: str) -> Space[Any]:
        """Of either paddle."""
        return PICTURE

    def action_space(self, agent: str) -> Space[Any]:
        """Stay, up, down."""
        return MOVE

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.uint8]], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        if seed is not None:
            self._seed(seed)
        self._game.reset()
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        """Both at once, until the frames are over or the episode is."""
        game, agents = self._game, self.agents
        total = 0.0
        for _ in range(self._frames):
            for agent in agents:
                game.step(actions[agent], agent)
            total += game.rewards[agents[0]]
            if game.terminate or game.truncate:
                self.agents = []
                break
        rewards = dict.fromkeys(agents, total)
        ends = dict.fromkeys(agents, game.terminate), dict.fromkeys(agents, game.truncate)
        seen = self._seen()
        return {a: seen[a] for a in agents}, rewards, *ends, {agent: {} for agent in agents}

    def close(self) -> None:
        """Leave the screen."""
        self._game.close()

    def _seen(self) -> dict[str, npt.NDArray[np.uint8]]:
        self._game.draw()
        red = pygame.surfarray.pixels3d(self._game.screen)[::EVERY, ::EVERY, 0]
        picture = np.ascontiguousarray(red.T)[..., np.newaxis]
        return dict.fromkeys(self.possible_agents, picture)
