"""Colours of charts: each has a member for light pages and paper, and one for dark pages.

A specification names colours by expressions, and its configuration says which ones they are.

Tests: `tests/populations/views/test_palette.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Colour(NamedTuple):
    """Colour on white, and on a dark page."""

    light: str
    dark: str


# Hues of Okabe and Ito. The first seven and grey are readable as text (4.5 to 1, WCAG 2.2), and
# colour-blind readers can tell the seven apart.
COLOURS = {
    "blue": Colour("#0072B2", "#56B4E9"),
    "orange": Colour("#BD4C07", "#E0682A"),
    "green": Colour("#1D7F5D", "#8FDCC0"),
    "purple": Colour("#8B3F7E", "#B57AA8"),
    "ochre": Colour("#6B4A06", "#FAC131"),
    "violet": Colour("#42208F", "#8577F0"),
    "brown": Colour("#3C2111", "#BC9E85"),
    # Less of what blue stands for.
    "pale": Colour("#4398CF", "#2E7DB8"),
    "grey": Colour("#6E7781", "#9AA5B1"),
    "paper": Colour("#FFFFFF", "#12161B"),
    # Paul Tol's muted colours, for areas.
    "area1": Colour("#332288", "#6655CC"),
    "area2": Colour("#88CCEE", "#88CCEE"),
    "area3": Colour("#44AA99", "#44AA99"),
    "area4": Colour("#117733", "#1E8A45"),
    "area5": Colour("#999933", "#999933"),
    "area6": Colour("#DDCC77", "#DDCC77"),
    "area7": Colour("#CC6677", "#CC6677"),
    "area8": Colour("#882255", "#B04070"),
    "area9": Colour("#AA4499", "#BB5FAC"),
}

PALETTE = ("blue", "orange", "green", "purple", "ochre", "violet", "brown")
"""Colours of what has a name, in their order."""

AREAS = tuple(name for name in COLOURS if name.startswith("area"))
"""Colours of areas, where `PALETTE` has too few."""

NUM_BEST = 5
"""Policies with a colour where there are more than colours."""


def paint(name: str) -> dict[str, str]:
    """Return a colour in a specification."""
    return {"expr": f"colours.{name}"}


def coloured(best_first: Sequence[str]) -> dict[str, str]:
    """Return the colours of the players that have one, by player."""
    if len(best_first) <= len(PALETTE):
        # In order of names, so that a policy keeps its colour.
        return dict(zip(sorted(best_first), PALETTE, strict=False))
    return dict(zip(best_first[:NUM_BEST], PALETTE, strict=False))
