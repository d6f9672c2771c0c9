"""Hex of OpenSpiel."""

from __future__ import annotations

from arena.drawings.openspiel import draw_stones
from arena.drawings.picture import Moment, Picture


def draw(moment: Moment) -> Picture:
    """Draw the stones; each player connects two edges."""
    return draw_stones(moment, notes=(": top to bottom", ": left to right"), ground="hexagons")
