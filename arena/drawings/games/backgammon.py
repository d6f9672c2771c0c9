"""Backgammon of OpenSpiel: 24 points, the bar between them, the dice, and what is borne off."""

from __future__ import annotations

import re

from arena.drawings.boards import MARK, draw_board, write
from arena.drawings.openspiel import STONES
from arena.drawings.picture import Moment, Picture

MOST, BAR = 5, 6
"""Most pieces of a point that are drawn one by one, and the column of the bar."""


def draw(moment: Moment) -> Picture:
    """Draw the points: 1 at the lower right, 12 at the lower left, 24 at the upper right."""
    cells, pieces = [["."] * 13 for _ in range(2 * MOST + 1)], {**STONES}
    for point in range(24):
        column = point - 12 if point > 11 else 11 - point
        for player, piece in enumerate("xo"):
            number = moment.env.board(player, point)
            for at in range(min(number, MOST)):
                is_full = at == MOST - 1 and number > MOST
                row = cells[at if point > 11 else -1 - at]
                row[column + (column >= BAR)] = f"{number} {piece}" if is_full else piece
            middle = {"x": 50, "y": 68, "text_anchor": "middle", "font_size": 52}
            count = write(str(number), **middle, class_="count", fill=MARK)
            pieces[f"{number} {piece}"] = STONES[piece] + count
    text = dict(line.split(":", 1) for line in str(moment.env).splitlines() if ":" in line)
    for at, piece in enumerate(text["Bar"].strip()):
        cells[(at + MOST // 2) % len(cells)][BAR] = piece
    return draw_board(
        moment,
        cells,
        pieces,
        move=moment.move.partition(" - ")[2],
        notes=[f": {number} off" for number in re.findall(r"\d+", text["Scores, X"])],
        facts=[f"next dice:{text['Dice']}"],
        ground="bands",
    )
