"""Backgammon of OpenSpiel: 24 points, the bar between them, the dice, and what is borne off."""

from __future__ import annotations

import re

from arena.drawings.boards import draw_board
from arena.drawings.colours import MARK
from arena.drawings.picture import BLACK, WHITE, Moment, Picture, Piece, write

MOST, BAR = 5, 6
"""Most pieces of a point that are drawn one by one, and the column of the bar."""


def draw(moment: Moment) -> Picture:
    """Draw the points: 1 at the lower right, 12 at the lower left, 24 at the upper right."""
    cells: list[list[Piece | None]] = [[None] * 13 for _ in range(2 * MOST + 1)]
    for point in range(24):
        column = point - 12 if point > 11 else 11 - point
        for player, piece in enumerate((BLACK, WHITE)):
            number = moment.env.board(player, point)
            for at in range(min(number, MOST)):
                row = cells[at if point > 11 else -1 - at]
                is_full = at == MOST - 1 and number > MOST
                row[column + (column >= BAR)] = _counted(piece, number) if is_full else piece
    text = dict(line.split(":", 1) for line in str(moment.env).splitlines() if ":" in line)
    for at, letter in enumerate(text["Bar"].strip()):
        cells[(at + MOST // 2) % len(cells)][BAR] = BLACK if letter == "x" else WHITE
    off = [f": {number} off" for number in re.findall(r"\d+", text["Scores, X"])]
    legend = moment.legend((BLACK, WHITE), notes=off)
    return draw_board(
        moment.caption(moment.move.partition(" - ")[2]),
        cells,
        ground="bands",
        legend=[*legend, (None, f"next dice:{text['Dice']}")],
    )


def _counted(piece: Piece, number: int) -> Piece:
    """Return a piece that stands for more than there is room for."""
    middle = {"x": 50, "y": 68, "text_anchor": "middle", "font_size": 52}
    return Piece(str(number), piece.svg + write(str(number), class_="count", fill=MARK, **middle))
