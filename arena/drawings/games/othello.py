"""Othello of OpenSpiel."""

from __future__ import annotations

from arena.drawings.openspiel import draw_cells
from arena.drawings.picture import Moment, Picture


def draw(moment: Moment) -> Picture:
    """Draw the discs, and how many each player has."""
    # Above the board stands who is on turn.
    board = str(moment.env).partition("\n")[2]
    notes = [f": {board.count(letter)}" for letter in "xo"]
    return draw_cells(moment, notes=notes, rows="12345678", columns="abcdefgh")
