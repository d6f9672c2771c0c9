"""A bot for tic-tac-toe: it wins if it can, else it prefers the centre, then corners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

LINES = np.array(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
)
VALUES = np.array([2.0, 1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0, 2.0])
WIN = 100.0


class Corners:
    """Player by hand: ``bot:corners:Corners(mistakes=0.1)``.

    Args:
        mistakes: Share of its moves that are random.
    """

    def __init__(self, *, mistakes: float = 0.0) -> None:
        self.mistakes = mistakes

    def act(
        self,
        observation: Mapping[str, npt.NDArray[Any]],
        action_mask: npt.NDArray[np.bool_],
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Choose a cell in each of N games.

        Args:
            observation: Its part ``observation`` has the own marks, then the other's. [N, 3, 3, 2].
            action_mask: Empty cells. bool [N, 9].
            agent: Unused.
            rng: Generator of the mistakes, and of the choice among equals.
        """
        own = observation["observation"][..., 0].reshape(-1, 9)
        # A line is winning if it has two own marks and an empty cell. [N, 8]
        is_near = (own[:, LINES].sum(axis=2) == 2) & (action_mask[:, LINES].sum(axis=2) == 1)
        values = np.tile(VALUES, (len(own), 1))
        for line in range(len(LINES)):
            values[:, LINES[line]] += WIN * is_near[:, line, np.newaxis]
        is_mistake = rng.random(len(own)) < self.mistakes
        values[is_mistake] = 0.0
        values += rng.random(values.shape) * 0.5
        # The mask is applied last, so that an occupied cell is never chosen.
        chosen: npt.NDArray[np.int64] = np.where(action_mask, values, -np.inf).argmax(axis=1)
        return chosen
