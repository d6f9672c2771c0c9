"""A Connect Four player that looks one move ahead for both sides.

Boards are bitboards as in Tromp's Fhourstones, https://tromp.github.io/c4/fhour.html: 7 bits per
column from the bottom, six cells and one that stays empty, so that no line of four continues from
one column's top into the next one's bottom. Shapes: N rows, 7 columns.
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
"""Bit of each cell, row by row from the top left as in observations. [42]."""

PLANES = np.kron(2.0 ** CELLS[:, np.newaxis], np.eye(2))
"""Matrix from flat observations to bitboards; the product is exact, as the bits are below 2^53.
[84, 2]
"""

BOTTOM = np.uint64(sum(1 << (COLUMN_BITS * column) for column in range(COLUMNS)))
BOARD = np.uint64(int(BOTTOM) * ((1 << ROWS) - 1))
COLUMN = np.array(
    [((1 << ROWS) - 1) << (COLUMN_BITS * column) for column in range(COLUMNS)], dtype=np.uint64
)
DIRECTIONS = (COLUMN_BITS, COLUMN_BITS - 1, COLUMN_BITS + 1)
"""Distance in bits to the neighbour beside, falling and rising."""


class Tactical:
    """Player that wins at once if it can, else blocks a win, else plays at random.

    An `arena.bots.asking.Bot`: ``bot:arena.bots.connect_four:Tactical``. It chooses evenly among
    equally good columns. It looks one move ahead and no further: a policy with 99% against random
    play may still overlook a line of three, which `Tactical` never does.
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
            observation: Observation of the environment. Its part ``observation`` has the player's
                own stones, then the opponent's; 0 or 1, the top row first. [N, 6, 7, 2].
            action_mask: True for columns that have room. None: derived from the stones. bool [N,
                7].
            agent: Unused.
            rng: Generator that breaks ties.

        Returns:
            Column per row. int64 [N].
        """
        own, other = bitboards(observation["observation"])
        next_cells = playable(own | other)
        # The environment's mask decides on legal columns, not the bot.
        room = in_columns(next_cells)
        legal = room if action_mask is None else np.asarray(action_mask, dtype=np.bool_)
        wins = in_columns(completing(own) & next_cells) & legal
        blocks = in_columns(completing(other) & next_cells) & legal
        best = np.where(blocks.any(axis=1, keepdims=True), blocks, legal)
        best = np.where(wins.any(axis=1, keepdims=True), wins, best)
        # The largest of independent uniform draws is a uniform choice among the best.
        draws = rng.random(best.shape, dtype=np.float32)
        draws[~best] = -1.0
        return np.asarray(draws.argmax(axis=1), dtype=np.int64)


def bitboards(observation: npt.NDArray[Any]) -> tuple[Bits, Bits]:
    """Return the stones of the player on turn and of the opponent. [N, 6, 7, 2] to two [N]."""
    flat = observation.reshape(len(observation), ROWS * COLUMNS * 2).astype(np.float64)
    boards = (flat @ PLANES).astype(np.uint64)
    return boards[:, 0], boards[:, 1]


def playable(occupied: Bits) -> Bits:
    """Return the lowest empty cell of each column that has room. [N]."""
    # Adding 1 at the bottom of a column carries through its stones to the first empty bit.
    return (occupied + BOTTOM) & BOARD


def completing(stones: Bits) -> Bits:
    """Return the cells that would complete four of these stones, taken or not. [N]."""
    # A vertical line is only completed at its top, above three stones.
    up, up2, up3 = (stones << np.uint64(k) for k in (1, 2, 3))
    found = up & up2 & up3
    for step in DIRECTIONS:
        up, up2, up3 = (stones << np.uint64(step * k) for k in (1, 2, 3))
        down, down2, down3 = (stones >> np.uint64(step * k) for k in (1, 2, 3))
        # The cell may be the last, third, second or first of the four.
        found |= (up & up2 & up3) | (down & up & up2) | (down2 & down & up) | (down3 & down2 & down)
    return np.asarray(found & BOARD)


def in_columns(cells: Bits) -> npt.NDArray[np.bool_]:
    """Return which columns have one of the cells. [N] to bool [N, 7]."""
    return np.asarray(cells[:, np.newaxis] & COLUMN, dtype=np.bool_)
