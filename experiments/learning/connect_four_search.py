"""A bot for Connect Four that looks some plies ahead.

Written beside Arena's environments and not with them, so that it can judge players. Boards are
bitboards as in `arena.bots.connect_four`. Shapes: N boards, 7 columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.bots.connect_four import (
    BOARD,
    BOTTOM,
    CELLS,
    COLUMN,
    COLUMNS,
    DIRECTIONS,
    Bits,
    bitboards,
    completing,
    playable,
)

Values = npt.NDArray[np.int64]

FULL, LOWEST = int(BOARD), int(BOTTOM)
_COLUMN = [int(column) for column in COLUMN]

_CELLS = CELLS.tolist()

LINES = {
    step: [
        line
        for line in (sum(1 << (cell + k * step) for k in range(4)) for cell in _CELLS)
        if line & FULL == line
    ]
    for step in (1, *DIRECTIONS)
}
"""Cells of the 69 lines of four, by the distance of neighbours."""

WIN = 10_000
"""Value of a win, above that of any lines; a ply that is left adds one, so sooner is better."""

ILLEGAL = -100_000

WORTH = (1, 3, 9)
"""Worth of a line of four with one, two and three stones of one player and none of the other."""

MOST_ROWS = 64
"""Boards that are searched at once, so that the 7^4 that follow each stay in a cache."""

STARTS = [
    (np.uint64(step), np.uint64(sum(line & -line for line in lines)))
    for step, lines in LINES.items()
]
"""Distance of neighbours in a line, and the first cells of all such lines."""


def board_after(moves: str) -> tuple[int, int]:
    """Return the stones of the player on turn and of the opponent after moves by column (0-6)."""
    own = other = 0
    for move in moves:
        own, other = other, own | playable_cells(own | other) & _COLUMN[int(move)]
    return own, other


class Search:
    """Player that looks some plies ahead and then counts open lines.

    An `arena.bots.asking.Bot`. A line of four is open to a player while the other has no stone in
    it, and worth more the more stones are there: see `WORTH`. Most lines lead through the centre,
    so it is preferred. The search has its full width, which values moves as alpha-beta does. It
    chooses evenly among the best.

    Args:
        depth: Plies, its own move included; at least 1.
    """

    def __init__(self, *, depth: int = 4) -> None:
        self._depth = depth

    def act(
        self,
        observation: Mapping[str, npt.NDArray[Any]],
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> Values:
        """Choose a column per row; as `Tactical.act`."""
        own, other = bitboards(observation["observation"])
        values = np.empty((len(own), COLUMNS), dtype=np.int64)
        for start in range(0, len(own), MOST_ROWS):
            rows = slice(start, start + MOST_ROWS)
            values[rows] = move_values(own[rows], other[rows], depth=self._depth)
        return drawn_columns(values == values.max(axis=1, keepdims=True), rng)


def drawn_columns(columns: npt.NDArray[np.bool_], rng: np.random.Generator) -> Values:
    """Draw one of the columns of each row, evenly. bool [N, 7] to int64 [N]."""
    draws = np.where(columns, rng.random(columns.shape), -1.0)
    return np.asarray(draws.argmax(axis=1), dtype=np.int64)


def move_values(own: Bits, other: Bits, *, depth: int) -> Values:
    """Return the value of each column to the player on turn by a search of full width.

    Args:
        own: Stones of the player on turn. [N].
        other: Stones of the opponent. [N].
        depth: Plies to look ahead, at least 1.

    Returns:
        Values; `ILLEGAL` where there is no room, and where another column wins at once. [N, 7].
    """
    cells = playable(own | other)[:, np.newaxis] & COLUMN
    wins = (completing(own)[:, np.newaxis] & cells) != 0
    values = np.where(wins, WIN + depth, ILLEGAL)
    row, column = np.nonzero((cells != 0) & ~wins.any(axis=1, keepdims=True))
    after = own[row] | cells[row, column]
    values[row, column] = -_board_values(other[row], after, depth=depth - 1)
    return values


def _board_values(own: Bits, other: Bits, *, depth: int) -> Values:
    """Return the values of boards to the player on turn. [N]."""
    occupied = own | other
    if depth > 0:
        found = move_values(own, other, depth=depth).max(axis=1)
    else:
        found = _open_lines(own, other) - _open_lines(other, own)
    return np.where(occupied == BOARD, 0, found)


def _open_lines(stones: Bits, others: Bits) -> Values:
    """Return what a player's open lines are worth to him. [N]."""
    found = np.zeros(len(stones), dtype=np.int64)
    for step, starts in STARTS:
        one, two, three, four = (stones >> step * np.uint64(k) for k in range(4))
        blocked = others | (others >> step)
        is_open = starts & ~(blocked | (blocked >> step * np.uint64(2)))
        # The number of stones (0 to 3) in the lines from each cell has two bits; no line has all
        # four.
        odd = one ^ two ^ three ^ four
        pair = (one & two) ^ (three & four) ^ ((one ^ two) & (three ^ four))
        for worth, lines in zip(WORTH, (odd & ~pair, pair & ~odd, odd & pair), strict=True):
            found += worth * np.bitwise_count(lines & is_open).astype(np.int64)
    return found


def playable_cells(occupied: int) -> int:
    """Return the lowest empty cell of each column, of one board."""
    return (occupied + LOWEST) & FULL
