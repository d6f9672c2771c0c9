"""Boards of cells: one function draws them all.

Tests: `tests/arena/drawings/test_boards.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import sqrt
from typing import Any, Literal

from arena.drawings import colours
from arena.drawings.picture import WIDTH, Legend, Picture, Piece, line, place, sheet, write
from arena.drawings.svg import tag

Ground = Literal["squares", "checks", "bands", "holes", "points", "hexagons"]
"""Cells: squares of one colour, of two, or of two by column, holes of a blue wall, crossings of
lines, hexagons.
"""

Cells = Sequence[Sequence[Piece | None]]
"""Rows of pieces, from the top and from the left. They may differ in length."""

Names = str | Sequence[str]

LARGEST = 84.0
"""Most pixels of a cell."""


def draw_board(
    caption: str,
    cells: Cells,
    *,
    ground: Ground = "squares",
    last: Collection[tuple[int, int]] = (),
    legend: Legend = (),
    rows: Names = "",
    columns: Names = "",
) -> Picture:
    """Draw a board.

    Args:
        caption: Line above it.
        cells: Pieces by row and column.
        ground: Look of the cells.
        last: Cells of the last move, which are marked.
        legend: Pieces and what they are.
        rows: Names of the rows, at the left. Empty: they have none.
        columns: Names of the columns, below.
    """
    num_columns = max(map(len, cells), default=0)
    # Each row of hexagons stands half a cell to the right of the one above.
    slant, squeeze = (0.5, sqrt(3) / 2) if ground == "hexagons" else (0.0, 1.0)
    left, across = (26.0 if rows else 14.0), num_columns + slant * (len(cells) - 1)
    size = min(LARGEST, (WIDTH - left - 14) / max(across, 1))
    left += (WIDTH - left - 14 - size * across) / 2

    def centre(row: int, column: int) -> tuple[float, float]:
        return left + size * (column + 0.5 + slant * row), size * (squeeze * row + 0.5)

    parts = [_wall(ground, num_rows=len(cells), num_columns=num_columns, left=left, size=size)]
    ring = line("#ffffff" if ground == "holes" else colours.MARK, max(2.5, size / 14))
    for row, pieces in enumerate(cells):
        for column, piece in enumerate(pieces):
            x, y = centre(row, column)
            is_dark = {"checks": row + column, "bands": column}.get(ground, 0) % 2 == 1
            parts.append(_cell(ground, x=x, y=y, size=size, is_dark=is_dark))
            if piece is not None:
                parts.append(place(piece, x=x, y=y, size=squeeze * size, cell=f"{row},{column}"))
            if (row, column) in last:
                parts.append(tag("circle", cx=x, cy=y, r=0.46 * size, **ring))
    small: dict[str, Any] = {"text_anchor": "middle", "font_size": 12}
    below = size * (squeeze * len(cells) + 1 - squeeze)
    for row, name in enumerate(rows):
        x, y = centre(row, 0)
        parts.append(write(name, x=x - size / 2 - 10, y=y + 4, **small))
    for column, name in enumerate(columns):
        parts.append(write(name, x=centre(len(cells) - 1, column)[0], y=below + 14, **small))
    text = _text(cells, last=last, rows=rows, columns=columns, slant=2 * slant)
    height = below + (20 if columns else 4)
    grid = {
        f"{row},{column}": (*centre(row, column), squeeze * size)
        for row, pieces in enumerate(cells)
        for column in range(len(pieces))
    }
    return sheet(caption, parts=parts, height=height, lines=text, legend=legend, grid=grid)


def _wall(ground: Ground, *, num_rows: int, num_columns: int, left: float, size: float) -> str:
    """Return what is behind all cells."""
    if ground not in ("holes", "points"):
        return ""
    width, height = size * num_columns, size * num_rows
    fill = colours.BLUE if ground == "holes" else colours.KAYA
    wall = tag("rect", x=left, y=0, width=width, height=height, rx=6, fill=fill)
    if ground == "holes":
        return wall
    half = size / 2
    lines = [
        f"M{left + half:.2f} {size * at + half:.2f}h{width - size:.2f}" for at in range(num_rows)
    ]
    lines += [
        f"M{left + size * at + half:.2f} {half:.2f}v{height - size:.2f}"
        for at in range(num_columns)
    ]
    return wall + tag("path", d="".join(lines), **line(colours.INK, 1))


def _cell(ground: Ground, *, x: float, y: float, size: float, is_dark: bool) -> str:
    """Return what is below a piece."""
    if ground == "points":
        return ""
    if ground == "holes":
        return tag("circle", cx=x, cy=y, r=0.4 * size, fill=colours.SKY)
    wood = {**line(colours.GRAIN, 1), "fill": colours.DARK_WOOD if is_dark else colours.WOOD}
    if ground == "hexagons":
        # It stands on a corner, and its sides are as long as its radius.
        half, side = size / 2, size / sqrt(3)
        corners = ((0, -2), (1, -1), (1, 1), (0, 2), (-1, 1), (-1, -1))
        ends = " ".join(f"{x + half * a:.2f},{y + side / 2 * b:.2f}" for a, b in corners)
        return tag("polygon", points=ends, **wood)
    return tag("rect", x=x - size / 2, y=y - size / 2, width=size, height=size, **wood)


def _text(
    cells: Cells, *, last: Collection[tuple[int, int]], rows: Names, columns: Names, slant: float
) -> list[str]:
    """Return a board as text, the last move in brackets: a piece and what is left of it."""
    margin = max(map(len, rows), default=0)
    text = []
    for row, pieces in enumerate(cells):
        shown = f"{rows[row] if rows else '':>{margin}}" + " " * int(slant * row)
        for column, piece in enumerate((*pieces, Piece("", ""))):
            shown += "[" if (row, column) in last else "]" if (row, column - 1) in last else " "
            shown += "." if piece is None else piece.letter
        text.append(shown)
    named = " " * margin + "".join(f" {name}" for name in columns)
    return [*text, named] if columns else text
