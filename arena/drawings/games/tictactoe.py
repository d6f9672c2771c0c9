"""Tic-tac-toe: PettingZoo's, its batched game, and OpenSpiel's."""

from __future__ import annotations

from arena.drawings.boards import CROSS, RING, draw_board
from arena.drawings.picture import Moment, Picture
from arena.envs.openspiel.game import is_openspiel


def draw(moment: Moment) -> Picture:
    """Draw the marks: an action is a cell."""
    cells = [["."] * 3 for _ in range(3)]
    # PettingZoo counts them column by column, OpenSpiel row by row.
    order = 1 if is_openspiel(moment.environment_id) else -1
    places = [divmod(action, 3)[::order] for _, action in moment.moves]
    for (agent, _), (row, column) in zip(moment.moves, places, strict=True):
        cells[row][column] = "xo"[agent]
    return draw_board(
        moment,
        cells,
        {"x": CROSS, "o": RING},
        move="".join(f"row {row + 1}, column {column + 1}" for row, column in places[-1:]),
        last=places[-1:],
    )
