"""Connect Four: PettingZoo's, its batched game, and OpenSpiel's."""

from __future__ import annotations

from arena.drawings import colours
from arena.drawings.boards import Cells, draw_board
from arena.drawings.openspiel import cells_of
from arena.drawings.picture import Moment, Picture, Piece, disc

DISCS = disc("x", colours.RED), disc("o", colours.YELLOW, core=colours.GOLD)


def draw(moment: Moment) -> Picture:
    """Draw the discs that fell: an action is a column."""
    cells: list[list[Piece | None]] = [[None] * 7 for _ in range(6)]
    for agent, column in moment.moves:
        lowest = max(row for row in range(6) if cells[row][column] is None)
        cells[lowest][column] = DISCS[agent]
    return _draw(moment, cells)


def draw_openspiel(moment: Moment) -> Picture:
    """Draw the discs that a state prints."""
    return _draw(moment, cells_of(moment.env, dict(zip("xo", DISCS, strict=True))))


def _draw(moment: Moment, cells: Cells) -> Picture:
    fallen = [column for _, column in moment.moves[-1:]]
    return draw_board(
        moment.caption("".join(f"column {column + 1}" for column in fallen)),
        cells,
        ground="holes",
        last=[(row, at) for at in fallen for row, discs in enumerate(cells) if discs[at]][:1],
        legend=moment.legend(DISCS),
        columns=[str(column + 1) for column in range(len(cells[0]))],
    )
