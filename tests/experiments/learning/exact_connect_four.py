"""Exact values of Connect Four, by which the stored positions are checked.

One board in plain integers, which are faster alone than arrays. What the search leaves out, and its
order of moves by the threats that they make, are from Pons, "Solving Connect 4",
http://blog.gamesolver.org. Bitboards are those of `arena.bots.connect_four`.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena.bots.connect_four import CELLS, COLUMN, DIRECTIONS
from experiments.learning.connect_four_search import FULL, LINES, LOWEST, playable_cells

LINES_THROUGH = {
    cell: sum(line >> cell & 1 for lines in LINES.values() for line in lines)
    for cell in CELLS.tolist()
}
"""Number of lines through a cell, by its bit: 3 in a corner, 13 in the centre."""

Table = dict[int, tuple[int, int]]
"""Lowest and highest value that a position may have, by its key."""


def exact_values(own: int, other: int) -> list[int | None]:
    """Solve each move of a position in which nobody has four.

    Returns:
        By column: 1, 0 or -1 where the player on turn wins, draws or loses after it; None where
            there is no room.
    """
    table: Table = {}
    cells = [playable_cells(own | other) & column for column in map(int, COLUMN)]
    return [_value_of_move(own, other, cell, table) if cell else None for cell in cells]


def _value_of_move(own: int, other: int, cell: int, table: Table) -> int:
    after = own | cell
    occupied = after | other
    if _completing(own) & cell:
        return 1
    if occupied == FULL:
        return 0
    if _completing(other) & playable_cells(occupied):
        return -1
    return -_solve(other, after, -1, 1, table)


def _completing(own: int) -> int:
    """Return the cells that complete four of these stones, as `completing` does for arrays."""
    found = (own << 1) & (own << 2) & (own << 3)
    for step in DIRECTIONS:
        up, down = own << step, own >> step
        two_up, two_down = up & (own << 2 * step), down & (own >> 2 * step)
        found |= two_up & ((own << 3 * step) | down) | two_down & ((own >> 3 * step) | up)
    return found & FULL


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
    moves = playable_cells(occupied)
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
    if occupied.bit_count() >= FULL.bit_count() - 2:
        return 0
    if not moves & (moves - 1):
        return -_solve(other, own | moves, -high, -low, table)
    # In each column the sum has one bit above the stones: different positions, different sums.
    key = own + occupied + LOWEST
    bounds = table.get(key)
    if bounds is None:
        bounds = (
            -1 if _has_line(FULL & ~own) else 0,
            1 if _has_line(FULL & ~other) else 0,
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
