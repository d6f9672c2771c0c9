"""Breakthrough of OpenSpiel."""

from __future__ import annotations

import re
from string import ascii_lowercase

from arena.drawings.openspiel import cells_of, draw_cells
from arena.drawings.picture import BLACK, WHITE, Moment, Picture

PIECES = {"b": BLACK._replace(letter="b"), "w": WHITE._replace(letter="w")}


def draw(moment: Moment) -> Picture:
    """Draw the pieces, and the cells that the last one left and reached."""
    cells = cells_of(moment.env, PIECES)
    rows = [str(row) for row in range(len(cells), 0, -1)]
    # A move is a7b6, perhaps with a star.
    moved = re.findall(r"([a-z])(\d+)", moment.move)
    last = [(rows.index(row), ascii_lowercase.index(column)) for column, row in moved]
    columns = ascii_lowercase[: len(cells[0])]
    return draw_cells(moment, pieces=PIECES, ground="checks", last=last, rows=rows, columns=columns)
