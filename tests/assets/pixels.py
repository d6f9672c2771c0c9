"""Pistonball from small grey pictures, as a user would wrap it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Space
from pettingzoo import ParallelEnv
from pettingzoo.butterfly import pistonball_v6
from pettingzoo.utils.wrappers import BaseParallelWrapper

ROWS, COLUMNS = slice(60, None, 8), slice(None, None, 4)
"""Of 457 x 120: the walls' upper part shows nothing; 50 x 30 are left."""

PICTURE: Space[Any] = Box(0, 255, (50, 30, 1), np.uint8)


class SmallPictures(BaseParallelWrapper):  # type: ignore[misc]
    """Every eighth row and fourth column of the red channel: uint8 [50, 30, 1]."""

    def observation_space(self, agent: str) -> Space[Any]:
        """Of one piston."""
        return PICTURE

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.uint8]], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        seen, infos = super().reset(seed=seed, options=options)
        return _small(seen), infos

    def step(self, actions: dict[str, int]) -> Any:
        """All pistons at once."""
        seen, *rest = super().step(actions)
        return _small(seen), *rest


def _small(seen: dict[str, npt.NDArray[np.uint8]]) -> dict[str, npt.NDArray[np.uint8]]:
    return {agent: picture[ROWS, COLUMNS, :1].copy() for agent, picture in seen.items()}


def pistonball(n_pistons: int = 10) -> ParallelEnv[str, npt.NDArray[np.uint8], int]:
    """Ten pistons that go up, down or nowhere."""
    return SmallPictures(pistonball_v6.parallel_env(continuous=False, n_pistons=n_pistons))
