"""A picture of a game at one moment, and what is drawn: an SVG and lines of text from one source.

Colours are those of paper, so that a file is readable on any ground. A page that has a dark side
sets the colours of the classes ``paper`` and ``ink`` below ``.game``; boards keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict

from arena.drawings import colours
from arena.drawings.svg import printable, tag
from arena.environment_spec import ContinuousActions, EnvironmentSpec

WIDTH = 360
"""Pixels of a drawing: a telephone's page has as many."""

NUM_COLUMNS, NUM_CHARACTERS = 80, 48
"""Most characters of a line of a terminal, and of a line of a drawing."""

LINE, TOP = 22, 32
"""Pixels of a line of the legend, and of the caption."""


Square = tuple[float, float, float]
"""Centre and size of a cell, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Picture of one moment.

    Attributes:
        text: Lines for a terminal of `NUM_COLUMNS`, ASCII but for names. Empty: there are none.
        svg: Whole SVG without styles and scripts. Empty: there is none.
        png: Pixels as a PNG file, of an environment that renders itself. Empty: there are none.
        grid: Centre and size of each cell of a board in the SVG, by its row and column, as in
            ``3,0``. Empty: it is no board.
    """

    # Bytes are text in JSON.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        ser_json_bytes="base64", val_json_bytes="base64"
    )

    text: str = ""
    svg: str = ""
    png: bytes = b""
    grid: Mapping[str, Square] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Game that was played, to be played again.

    Attributes:
        spec: Environment; id and kwargs are taken from here.
        seed: Seed of the episode, from `arena.envs.chance.episode_seed`.
        turns: Draws of the agents that decided in each step, as rows of
            `arena.envs.spaces.actions`: an integer from 0, or numbers. Of a game that goes on, a
            list to which each step is added before its moment is asked for.
        launch_directory: Directory put first on ``sys.path``.
        possible_agents: ``environment.possible_agents``.
        continuous_actions: ``environment.continuous_actions``.
        drawing: Function that draws it, as ``package.module:function``. None: Arena's own, or the
            environment renders itself.
        viewer: Agent that plays and sees no other's cards until the end. None: all are seen.
    """

    spec: EnvironmentSpec
    seed: int
    turns: Sequence[Mapping[str, int | tuple[float, ...]]]
    launch_directory: str
    possible_agents: list[str] | None = None
    continuous_actions: ContinuousActions = "squashed"
    drawing: str | None = None
    viewer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Moment of a game that is played again.

    Attributes:
        env: Live environment: a PettingZoo environment with its wrappers, a batched game of one,
            or a ``pyspiel.State``. A drawing only reads it.
        environment_id: Its id.
        agents: All agents.
        turns: All actions until now, in the environment's own form: those of each step by agent.
        move: Last actions in the game's own words, where it has them (OpenSpiel's do).
        returns: Sum of each agent's rewards until now. Empty: nobody has acted.
        viewer: Agent whose cards alone are seen. None: all are.
    """

    env: Any
    environment_id: str
    agents: tuple[str, ...]
    turns: Sequence[Mapping[str, Any]] = ()
    move: str = ""
    returns: Mapping[str, float] = field(default_factory=dict)
    viewer: str | None = None

    def shows(self, agent: str) -> bool:
        """Return whether an agent's cards are seen."""
        return self.viewer in (None, agent)

    @property
    def moves(self) -> list[tuple[int, Any]]:
        """Indices of the agents that acted, with their actions, in order."""
        index = {agent: at for at, agent in enumerate(self.agents)}
        return [(index[agent], action) for turn in self.turns for agent, action in turn.items()]

    def legend(self, pieces: Iterable[Piece], *, notes: Iterable[str] = ()) -> Legend:
        """Return the pieces of the agents with their names and perhaps a note behind each."""
        named = zip_longest(self.agents, notes, fillvalue="")
        return [(piece, agent + note) for piece, (agent, note) in zip(pieces, named, strict=False)]

    def caption(self, move: str | None = None) -> str:
        """Return the number of the last step, its agents and what they did (None: `move`)."""
        if not self.turns:
            return "start"
        return (
            f"{len(self.turns)}. {', '.join(self.turns[-1])}: {self.move if move is None else move}"
        )


Drawing = Callable[[Moment], Picture]
"""Function that draws a moment. It changes nothing, and equal moments give equal pictures."""


class Piece(NamedTuple):
    """Piece of a board, or mark of an agent.

    Attributes:
        letter: One character for the terminal.
        svg: Its shape in a square of 100 by 100.
    """

    letter: str
    svg: str


Legend = Sequence[tuple[Piece | None, str]]
"""Pieces and what they are; None: a line without a piece."""


def disc(letter: str, fill: str, *, core: str = "none") -> Piece:
    """Return a round piece; ``core`` is the colour of a ring in it, for eyes without colours."""
    edge = tag("circle", cx=50, cy=50, r=40, fill=fill, stroke="#000000", stroke_width=3)
    return Piece(letter, edge + tag("circle", cx=50, cy=50, r=22, **line(core, 7)))


def line(colour: str, width: float) -> dict[str, Any]:
    """Return the attributes of a shape that is not filled."""
    return {"fill": "none", "stroke": colour, "stroke_width": width, "stroke_linecap": "round"}


CROSS = Piece("x", tag("path", d="M22 22L78 78M78 22L22 78", **line(colours.BLUE, 14)))
RING = Piece("o", tag("circle", cx=50, cy=50, r=30, **line(colours.ORANGE, 14)))
BLACK, WHITE = disc("x", colours.BLACK), disc("o", colours.WHITE)


def place(piece: Piece, *, x: float, y: float, size: float, cell: str = "") -> str:
    """Return a piece in a square around a point; ``cell`` is its row and column on a board."""
    moved = f"translate({x - size / 2:.2f} {y - size / 2:.2f}) scale({size / 100:.4f})"
    # For whoever reads a drawing; pieces of the legend stand in no cell.
    read = {"class_": "piece", "data_cell": cell, "data_piece": piece.letter} if cell else {}
    return tag("g", piece.svg, **read, transform=moved)


def write(content: str, **attributes: object) -> str:
    """Return a line of text, which is escaped and cut off."""
    given = {"class_": "ink", "fill": colours.INK, **attributes}
    return tag("text", escape(printable(content, width=NUM_CHARACTERS)), **given)


def sheet(
    caption: str,
    *,
    parts: Sequence[str],
    height: float,
    lines: Sequence[str],
    legend: Legend = (),
    grid: Mapping[str, Square] = MappingProxyType({}),
) -> Picture:
    """Return a picture of parts on paper, with a caption above and a legend below.

    Args:
        caption: Line above the parts.
        parts: Elements of SVG, from (0, 0) to (`WIDTH`, height).
        height: Pixels of the parts.
        lines: The same for a terminal.
        legend: Pieces and what they are.
        grid: Cells of a board among the parts.
    """
    below = []
    for y, (piece, name) in zip(range(0, LINE * len(legend), LINE), legend, strict=True):
        if piece is not None:
            # On wood, as a black piece would not show on a dark page.
            below.append(tag("rect", x=14, y=y - 1, width=20, height=20, rx=4, fill=colours.WOOD))
            below.append(place(piece, x=24, y=y + 9, size=18))
        below.append(write(name, x=42 if piece else 14, y=y + 14))
    named = [name if piece is None else f"{piece.letter} {name}" for piece, name in legend]
    text = [printable(line.rstrip(), width=NUM_COLUMNS) for line in (caption, *lines, *named)]
    whole = f"{44 + height + LINE * len(legend):g}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="game" role="img" width="{WIDTH}" '
        f'height="{whole}" viewBox="0 0 {WIDTH} {whole}" font-family="{colours.FONT}" '
        'font-size="14">'
        + tag("title", escape(text[0]))
        + tag("desc", escape("\n".join(text[1:])))
        + tag("rect", class_="paper", width=WIDTH, height=whole, rx=8, fill=colours.PAPER)
        + write(caption, x=14, y=22, font_weight="bold")
        + tag("g", "".join(parts), transform=f"translate(0 {TOP})")
        + tag("g", "".join(below), transform=f"translate(0 {36 + height:g})")
    )
    moved = {cell: (x, y + TOP, size) for cell, (x, y, size) in grid.items()}
    return Picture(text="\n".join(text), svg=f"{svg}</svg>", grid=moved)
