"""A Connect Four player that looks one move ahead for both sides.

Boards are bitboards as in Tromp's Fhourstones, https://tromp.github.io/c4/fhour.html: 7 bits per
column from the bottom, six cells and one that stays empty, so that no line of four reaches from
one column's top to the next one's bottom. Shapes: N rows, 7 columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS, COLUMNS = 6, 7
COLUMN_BITS = ROWS + 1

Bits = npt.NDArray[np.uint64]

CELLS = np.array(
    [COLUMN_BITS * column + ROWS - 1 - row for row in range(ROWS) for column in range(COLUMNS)]
)
"""The bit of each cell, from the top left one row by row, as observations have them. [42]."""

PLANES = np.kron(2.0 ** CELLS[:, np.newaxis], np.eye(2))
"""Turns flat observations into bitboards: an exact product, for the bits are below 2^53. [84, 2]"""

BOTTOM = np.uint64(sum(1 << (COLUMN_BITS * column) for column in range(COLUMNS)))
BOARD = np.uint64(int(BOTTOM) * ((1 << ROWS) - 1))
COLUMN = np.array(
    [((1 << ROWS) - 1) << (COLUMN_BITS * column) for column in range(COLUMNS)], dtype=np.uint64
)
DIRECTIONS = (COLUMN_BITS, COLUMN_BITS - 1, COLUMN_BITS + 1)
"""Distance in bits of neighbours to the side, falling and rising."""


class Tactical:
    """Wins at once if it can, else blocks a win of the opponent's, else plays at random.

    An `arena.matches.actors.Bot`: ``bot:arena.bots.connect_four:Tactical``. Among several columns
    that are as good it draws evenly.
    """

    def act(
        self,
        observation: Mapping[str, npt.NDArray[Any]],
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Choose a column per row.

        Args:
            observation: As the environment gives it. Its part ``observation`` has own stones, then
                the opponent's; 0 or 1, the top row first. [N, 6, 7, 2].
            action_mask: True for columns that have room; None: seen from the stones. bool [N, 7].
            agent: Makes no difference.
            rng: Breaks ties.

        Returns:
            int64 [N].
        """
        own, other = bitboards(observation["observation"])
        next_cells = playable(own | other)
        room = in_columns(next_cells)
        legal = room if action_mask is None else np.asarray(action_mask, dtype=np.bool_)
        wins = in_columns(completing(own) & next_cells) & legal
        blocks = in_columns(completing(other) & next_cells) & legal
        best = np.where(blocks.any(axis=1, keepdims=True), blocks, legal)
        best = np.where(wins.any(axis=1, keepdims=True), wins, best)
        # Independent uniform draws: each of the best is the largest equally often.
        draws = rng.random(best.shape, dtype=np.float32)
        draws[~best] = -1.0
        return np.asarray(draws.argmax(axis=1), dtype=np.int64)


def bitboards(observation: npt.NDArray[Any]) -> tuple[Bits, Bits]:
    """Stones of the player on turn and of the opponent. [N, 6, 7, 2] to two [N]."""
    flat = observation.reshape(len(observation), ROWS * COLUMNS * 2).astype(np.float64)
    boards = (flat @ PLANES).astype(np.uint64)
    return boards[:, 0], boards[:, 1]


def playable(occupied: Bits) -> Bits:
    """The lowest empty cell of each column that has room. [N]."""
    return (occupied + BOTTOM) & BOARD


def completing(stones: Bits) -> Bits:
    """Cells that would make a line of four of these stones, taken or not. [N]."""
    # The vertical: only upwards, the cell on top of three.
    up, up2, up3 = (stones << np.uint64(k) for k in (1, 2, 3))
    found = up & up2 & up3
    for step in DIRECTIONS:
        up, up2, up3 = (stones << np.uint64(step * k) for k in (1, 2, 3))
        down, down2, down3 = (stones >> np.uint64(step * k) for k in (1, 2, 3))
        # The cell is the last of four, the third, the second, the first.
        found |= (up & up2 & up3) | (down & up & up2) | (down2 & down & up) | (down3 & down2 & down)
    return np.asarray(found & BOARD)


def in_columns(cells: Bits) -> npt.NDArray[np.bool_]:
    """Which columns have one of the cells. [N] to bool [N, 7]."""
    return np.asarray(cells[:, np.newaxis] & COLUMN, dtype=np.bool_)
