"""Connect Four: PettingZoo's, its batched game, and OpenSpiel's."""

from __future__ import annotations

from arena.drawings.boards import GOLD, RED, YELLOW, disc, draw_board
from arena.drawings.openspiel import cells_of
from arena.drawings.picture import Moment, Picture
from arena.envs.openspiel.game import is_openspiel

DISCS = {"x": disc(RED), "o": disc(YELLOW, core=GOLD)}


def draw(moment: Moment) -> Picture:
    """Draw the discs that fell: an action is a column."""
    cells = [["."] * 7 for _ in range(6)]
    if is_openspiel(moment.environment_id):
        # It may have another size.
        cells = [["."] * len(row) for row in cells_of(moment.env)]
    last: list[tuple[int, int]] = []
    for agent, column in moment.moves:
        last = [max((row, column) for row in range(len(cells)) if cells[row][column] == ".")]
        cells[last[0][0]][column] = "xo"[agent]
    return draw_board(
        moment,
        cells,
        DISCS,
        move="".join(f"column {column + 1}" for _, column in last),
        ground="holes",
        last=last,
        columns=[str(column + 1) for column in range(len(cells[0]))],
    )
