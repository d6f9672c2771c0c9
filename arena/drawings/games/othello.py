"""Othello of OpenSpiel."""

from __future__ import annotations

from arena.drawings.openspiel import cells_of, draw_stones
from arena.drawings.picture import Moment, Picture


def draw(moment: Moment) -> Picture:
    """Draw the discs, and how many each player has."""
    rows = cells_of(moment.env)
    notes = [f": {sum(row.count(letter) for row in rows)}" for letter in "xo"]
    return draw_stones(moment, notes=notes, rows="12345678", columns="abcdefgh")
