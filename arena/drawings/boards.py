"""Boards of cells, and hands of cards, which are rows of cells: one function draws them all.

A piece is shapes of SVG in a square of 100 by 100. Colours are those of paper, so that a file is
readable on any ground. A page that has a dark side sets the colours of the classes ``paper`` and
``ink`` below ``.game``; boards and cards keep theirs.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from math import sqrt
from typing import Any, Literal

from arena.drawings.picture import NUM_COLUMNS, Moment, Picture, printable, tag

PAPER, INK, MARK = "#f6f8fa", "#1b1f24", "#d6336c"
BLUE, ORANGE, RED, YELLOW, GOLD = "#2f6db5", "#d9730d", "#d62f3f", "#ffd23f", "#b58900"
WOOD, DARK_WOOD, GRAIN, KAYA, SKY = "#e9dfc9", "#b58f66", "#8a6d4b", "#e3bf7f", "#dfe8f3"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

WIDTH, MARGIN, LARGEST = 360, 14, 84.0
"""Pixels of a drawing, as many as a telephone's page has; beside a board; most of a cell."""

TOP, LINE, LETTER = 32, 22, 7
"""Pixels of the caption, of a line below the board, and most of a letter of a row's name."""

NUM_CHARACTERS = 48
"""Most characters of a line of a drawing."""

Ground = Literal["squares", "checks", "bands", "holes", "points", "hexagons", "table"]
"""Cells: squares of one colour, of two, or of two by column, holes of a blue wall, crossings of
lines, hexagons, each row half of one to the right of the row above, or nothing.
"""

Cells = Sequence[Sequence[str]]
"""Names of pieces by row and column, from the top and from the left; a name of no piece is an empty
cell. Rows may differ in length.
"""

Places = Collection[tuple[int, int]]
"""Rows and columns of cells."""


def line(colour: str, width: float) -> dict[str, Any]:
    """Return the attributes of a shape that is not filled."""
    return {"fill": "none", "stroke": colour, "stroke_width": width, "stroke_linecap": "round"}


def write(content: str, **attributes: object) -> str:
    """Return a line of text, which is escaped and cut off."""
    given = {"class_": "ink", "fill": INK, **attributes}
    return tag("text", escape(printable(content, width=NUM_CHARACTERS)), **given)


def disc(fill: str, *, core: str = "none") -> str:
    """Return a round piece; ``core`` is the colour of a ring in it, for eyes without colours."""
    edge = tag("circle", cx=50, cy=50, r=40, fill=fill, stroke="#000000", stroke_width=3)
    return edge + tag("circle", cx=50, cy=50, r=22, **line(core, 7))


def card(face: str, *, fill: str = INK) -> str:
    """Return a card; without a face it lies face down."""
    look = {**line(INK, 3), "fill": "#ffffff" if face else BLUE}
    # Cards are white on any page, so their faces must not change colour with the page's ink.
    written = write(face, x=50, y=69, text_anchor="middle", font_size=54, class_="face", fill=fill)
    return tag("rect", x=17, y=4, width=66, height=92, rx=8, **look) + written


CROSS = tag("path", d="M22 22L78 78M78 22L22 78", **line(BLUE, 14))
RING = tag("circle", cx=50, cy=50, r=30, **line(ORANGE, 14))
BLACK, WHITE = disc("#22262b"), disc("#ffffff")


def _square(fill: str, stroke: str = GRAIN) -> str:
    return tag("rect", width=100, height=100, fill=fill, stroke=stroke, stroke_width=2)


SQUARES = _square(WOOD), _square(DARK_WOOD)
HOLE = _square(BLUE, BLUE) + tag("circle", cx=50, cy=50, r=40, fill=SKY)
# The hexagon stands on a corner, and its sides are as long as its radius.
CORNERS = "50,-7.74 100,21.13 100,78.87 50,107.74 0,78.87 0,21.13"
HEXAGON = tag("polygon", points=CORNERS, **{**line(GRAIN, 2), "fill": WOOD})


def draw_board(
    moment: Moment,
    cells: Cells,
    pieces: Mapping[str, str],
    *,
    move: str | None = None,
    players: Sequence[str] = "xo",
    notes: Sequence[str] = (),
    facts: Sequence[str] = (),
    ground: Ground = "squares",
    last: Places = (),
    rows: Sequence[str] = "",
    columns: Sequence[str] = "",
) -> Picture:
    """Draw a board, or hands of cards.

    Args:
        moment: Moment; its number and agents stand above.
        cells: Pieces.
        pieces: Shapes by name; a terminal shows the first word of a name.
        move: Words for the last move. None: the game's own.
        players: Pieces of the agents, which are told below, if there are such pieces.
        notes: Texts behind the names of these agents.
        facts: Lines below.
        ground: Look of the cells.
        last: Cells of the last move, which are marked.
        rows: Names of the rows, at the left. Empty: they have none.
        columns: Names of the columns, below.
    """
    slant, tall = (0.5, sqrt(3) / 2) if ground == "hexagons" else (0.0, 1.0)
    across = max(map(len, cells), default=0) + slant * (len(cells) - 1)
    widest = max(map(len, rows), default=0)
    left = MARGIN + (min(LETTER * (widest + 1), WIDTH / 2) if rows else 0.0)
    size = min(LARGEST, (WIDTH - left - MARGIN) / max(across, 1))
    left += (WIDTH - left - MARGIN - size * across) / 2
    ring = tag("circle", cx=50, cy=50, r=46, **line("#ffffff" if ground == "holes" else MARK, 7))
    caption = moment.caption(move)
    parts, text = [write(caption, x=14, y=22, font_weight="bold")], [caption]
    for row, names in enumerate(cells):
        x, y = left + size * slant * row, TOP + size * tall * row
        shown = " " * int(2 * slant * row)
        if rows:
            middle = {"y": y + size / 2 + 4, "text_anchor": "end", "font_size": 12}
            parts.append(write(rows[row], x=x - 6, **middle))
            shown = f"{rows[row]:>{widest}}{shown}"
        for column, name in enumerate(names):
            shapes = _ground(ground, row, column, ends=(len(cells) - 1, len(names) - 1))
            shapes += pieces.get(name, "") + ring * ((row, column) in last)
            letter, read = ".", {"data_cell": f"{row},{column}"}
            if name in pieces:
                letter = read["data_piece"] = name.partition(" ")[0]
            place = f"translate({x + size * column:.2f} {y:.2f}) scale({size / 100:.4f})"
            parts.append(tag("g", shapes, **read, transform=place))
            shown += _before(row, column, last) + letter
        text.append(shown + _before(row, len(names), last))
    height = TOP + size * (tall * (len(cells) - 1) + 1)
    for column, name in enumerate(columns):
        x = left + size * (column + 0.5 + slant * (len(cells) - 1))
        parts.append(write(name, x=x, y=height + 14, text_anchor="middle", font_size=12))
    if columns:
        text.append(" " * widest + "".join(f" {name}" for name in columns))
        height += 16
    named = zip(players, moment.agents, notes or [""] * len(players), strict=False)
    legend = [(name, agent + note) for name, agent, note in named if name in pieces]
    for name, words in (*legend, *(("", fact) for fact in facts)):
        if name:
            # The piece is on wood, because a black one would not show on a dark page.
            piece = SQUARES[0] + pieces[name]
            place = f"translate(14 {height + 3:.2f}) scale(0.2)"
            parts.append(tag("g", piece, transform=place))
        parts.append(write(words, x=42 if name else 14, y=height + 18))
        text.append(f"{name} {words}".lstrip())
        height += LINE
    return _sheet(text, parts, height=height + 12)


def _ground(ground: Ground, row: int, column: int, *, ends: tuple[int, int]) -> str:
    """Return what is below the piece of a cell, on a board with the last row and column `ends`."""
    if ground == "points":
        # Lines end at the outer crossings.
        up, down = 50 * (row == 0), 100 - 50 * (row == ends[0])
        left, right = 50 * (column == 0), 100 - 50 * (column == ends[1])
        lines = f"M50 {up}V{down}M{left} 50H{right}"
        return _square(KAYA, KAYA) + tag("path", d=lines, **line(INK, 3))
    is_dark = {"checks": row + column, "bands": column}.get(ground, 0) % 2
    return {"holes": HOLE, "hexagons": HEXAGON, "table": ""}.get(ground, SQUARES[is_dark])


def _before(row: int, column: int, last: Places) -> str:
    """Return the character left of a cell: cells of the last move stand in brackets."""
    return "[" if (row, column) in last else "]" if (row, column - 1) in last else " "


def _sheet(lines: Sequence[str], parts: Sequence[str], *, height: float) -> Picture:
    """Return a picture of parts on paper, and the same as lines for a terminal."""
    text = [printable(line.rstrip(), width=NUM_COLUMNS) for line in lines]
    size = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH} {height:g}"}
    paper = tag("rect", class_="paper", width=WIDTH, height=height, rx=8, fill=PAPER)
    told = tag("title", escape(text[0])) + tag("desc", escape("\n".join(text[1:])))
    svg = tag(
        "svg",
        told + paper + "".join(parts),
        **{"xmlns": "http://www.w3.org/2000/svg", "class_": "game", "role": "img", **size},
        font_family=FONT,
        font_size=14,
    )
    return Picture(text="\n".join(text), svg=svg)
