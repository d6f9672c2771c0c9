"""Nim of OpenSpiel: piles, and what is left of them."""

from __future__ import annotations

from arena.drawings.boards import INK, draw_board, line
from arena.drawings.picture import Moment, Picture
from arena.drawings.svg import tag

STICK = tag("path", d="M50 14V86", **line(INK, 14))


def draw(moment: Moment) -> Picture:
    """Draw a row for each pile; cells whose stick was taken are empty."""
    begun = moment.env.get_game().get_parameters()["pile_sizes"].split(";")
    left = str(moment.env).partition(": ")[2].split()
    piles = [f"{'|' * int(number):.<{size}}" for size, number in zip(begun, left, strict=True)]
    rows = [str(pile + 1) for pile in range(len(piles))]
    return draw_board(moment, piles, {"|": STICK}, move=moment.move.rstrip(";"), rows=rows)
