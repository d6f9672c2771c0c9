"""Tic-tac-toe: PettingZoo's, its batched game, and OpenSpiel's."""

from __future__ import annotations

from arena.drawings.boards import draw_board
from arena.drawings.openspiel import draw_cells
from arena.drawings.picture import CROSS, RING, Moment, Picture, Piece


def draw(moment: Moment) -> Picture:
    """Draw the marks: an action is a cell, counted column by column."""
    cells: list[list[Piece | None]] = [[None] * 3 for _ in range(3)]
    for agent, action in moment.moves:
        cells[action % 3][action // 3] = (CROSS, RING)[agent]
    last = [(action % 3, action // 3) for _, action in moment.moves[-1:]]
    caption = moment.caption("".join(f"row {row + 1}, column {column + 1}" for row, column in last))
    return draw_board(caption, cells, last=last, legend=moment.legend((CROSS, RING)))


def draw_openspiel(moment: Moment) -> Picture:
    """Draw the marks that a state prints."""
    return draw_cells(moment, pieces={"x": CROSS, "o": RING})
