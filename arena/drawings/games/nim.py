"""Nim of OpenSpiel: piles, and what is left of them."""

from __future__ import annotations

from arena.drawings.boards import draw_board
from arena.drawings.colours import INK
from arena.drawings.picture import Moment, Picture, Piece, line
from arena.drawings.svg import tag

STICK = Piece("|", tag("path", d="M50 14V86", **line(INK, 14)))


def draw(moment: Moment) -> Picture:
    """Draw a row for each pile; cells whose stick was taken are empty."""
    begun = moment.env.get_game().get_parameters()["pile_sizes"].split(";")
    left = str(moment.env).partition(": ")[2].split()
    piles = [
        [STICK] * int(number) + [None] * (int(size) - int(number))
        for size, number in zip(begun, left, strict=True)
    ]
    rows = [str(pile + 1) for pile in range(len(piles))]
    return draw_board(moment.caption(moment.move.rstrip(";")), piles, rows=rows)
