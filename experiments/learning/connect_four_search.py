"""Two searches of Connect Four: a bot that looks some plies ahead, and exact values.

Written beside Arena's environments and not with them, so that they can judge players. Boards are
bitboards as in `arena.bots.connect_four`. The bot has N boards in arrays, the exact search one in
plain integers, which are faster alone. What that one leaves out, and its order of moves by the
threats that they make, are from Pons, "Solving Connect 4", http://blog.gamesolver.org. Shapes: N
boards, 7 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_BOARD, _BOTTOM = int(BOARD), int(BOTTOM)
_COLUMN = [int(column) for column in COLUMN]

_CELLS = CELLS.tolist()

LINES = {
    step: [
        line
        for line in (sum(1 << (cell + k * step) for k in range(4)) for cell in _CELLS)
        if line & _BOARD == line
    ]
    for step in (1, *DIRECTIONS)
}
"""Cells of the 69 lines of four, by the distance of neighbours."""

LINES_THROUGH = {
    cell: sum(line >> cell & 1 for lines in LINES.values() for line in lines) for cell in _CELLS
}
"""Number of lines through a cell, by its bit: 3 in a corner, 13 in the centre."""

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

Table = dict[int, tuple[int, int]]
"""Lowest and highest value that a position may have, by its key."""


def board_after(moves: str) -> tuple[int, int]:
    """Return the stones of the player on turn and of the opponent after moves by column (0-6)."""
    own = other = 0
    for move in moves:
        own, other = other, own | _playable(own | other) & _COLUMN[int(move)]
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
        # The number of stones in the lines from each cell, as two bits: nobody has all four.
        odd = one ^ two ^ three ^ four
        pair = (one & two) ^ (three & four) ^ ((one ^ two) & (three ^ four))
        for worth, lines in zip(WORTH, (odd & ~pair, pair & ~odd, odd & pair), strict=True):
            found += worth * np.bitwise_count(lines & is_open).astype(np.int64)
    return found


def exact_values(own: int, other: int) -> list[int | None]:
    """Solve each move of a position in which nobody has four.

    Returns:
        By column: 1, 0 or -1 where the player on turn wins, draws or loses after it; None where
            there is no room.
    """
    table: Table = {}
    cells = [_playable(own | other) & column for column in _COLUMN]
    return [_value_of_move(own, other, cell, table) if cell else None for cell in cells]


def _value_of_move(own: int, other: int, cell: int, table: Table) -> int:
    after = own | cell
    occupied = after | other
    if _completing(own) & cell:
        return 1
    if occupied == _BOARD:
        return 0
    if _completing(other) & _playable(occupied):
        return -1
    return -_solve(other, after, -1, 1, table)


def _playable(occupied: int) -> int:
    return (occupied + _BOTTOM) & _BOARD


def _completing(own: int) -> int:
    """Return the cells that complete four of these stones, as `completing` does for arrays."""
    found = (own << 1) & (own << 2) & (own << 3)
    for step in DIRECTIONS:
        up, down = own << step, own >> step
        two_up, two_down = up & (own << 2 * step), down & (own >> 2 * step)
        found |= two_up & ((own << 3 * step) | down) | two_down & ((own >> 3 * step) | up)
    return found & _BOARD


def _solve(own: int, other: int, low: int, high: int, table: Table) -> int:
    """Return the value to a player on turn who cannot win at once, by alpha-beta.

    Args:
        own: Stones of the player on turn.
        other: Stones of the opponent. Somewhere is room.
        low: Lower end of the window; at or below it the answer is an upper bound.
        high: Upper end; at or above it the answer is a lower bound.
        table: Bounds of positions with the player on turn that were solved before.
    """
    occupied = own | other
    threats = _completing(other) & ~occupied
    moves = _playable(occupied)
    forced = moves & threats
    if forced:
        if forced & (forced - 1):
            return -1
        moves = forced
    # Below a cell that completes the opponent's four nobody plays.
    moves &= ~(threats >> 1)
    if not moves:
        return -1
    # Neither player can win any more with two cells left.
    if occupied.bit_count() >= _BOARD.bit_count() - 2:
        return 0
    if not moves & (moves - 1):
        return -_solve(other, own | moves, -high, -low, table)
    # In each column the sum has one bit above the stones: different positions, different sums.
    key = own + occupied + _BOTTOM
    bounds = table.get(key)
    if bounds is None:
        bounds = (
            -1 if _has_line(_BOARD & ~own) else 0,
            1 if _has_line(_BOARD & ~other) else 0,
        )
    least, most = bounds
    alpha, beta = max(low, least), min(high, most)
    if alpha >= beta:
        return least if least >= high else most
    best = -1
    for _, cell in sorted(_ordered(own, occupied, moves), reverse=True):
        best = max(best, -_solve(other, own | cell, -beta, -alpha, table))
        if best >= beta:
            break
        alpha = max(alpha, best)
    # An answer above the window's lower end is a lower bound, one below its upper end an upper one.
    if best > low:
        least = max(least, best)
    if best < high:
        most = min(most, best)
    table[key] = (least, most)
    return best


def _ordered(own: int, occupied: int, moves: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield moves behind what a good one has most of: open cells, and lines through its cell."""
    while moves:
        cell = moves & -moves
        moves ^= cell
        open_cells = _completing(own | cell) & ~occupied
        yield (open_cells.bit_count(), LINES_THROUGH[cell.bit_length() - 1]), cell


def _has_line(cells: int) -> bool:
    """Return whether four of the cells are in a line."""
    for step in LINES:
        pairs = cells & (cells >> step)
        if pairs & (pairs >> 2 * step):
            return True
    return False
