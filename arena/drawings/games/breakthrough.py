"""Breakthrough of OpenSpiel."""

from __future__ import annotations

import re
from string import ascii_lowercase

from arena.drawings.boards import BLACK, WHITE, draw_board
from arena.drawings.openspiel import cells_of
from arena.drawings.picture import Moment, Picture


def draw(moment: Moment) -> Picture:
    """Draw the pieces, and the cells that the last one left and reached."""
    cells = cells_of(moment.env, "bw")
    # A move is a7b6, perhaps with a star.
    moved = re.findall(r"([a-z])(\d+)", moment.move)
    return draw_board(
        moment,
        cells,
        {"b": BLACK, "w": WHITE},
        players="bw",
        ground="checks",
        last=[(len(cells) - int(row), ascii_lowercase.index(column)) for column, row in moved],
        rows=[str(row) for row in range(len(cells), 0, -1)],
        columns=ascii_lowercase[: len(cells[0])],
    )
