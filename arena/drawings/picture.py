"""A picture of a game at one moment: an SVG and lines of text, drawn from one source.

Elements of SVG are text: escaped, without styles and scripts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError, fromstring

from arena.environment_spec import ContinuousActions, EnvironmentSpec

NUM_COLUMNS = 80
"""Most characters of a line of a terminal."""

SPACE = "{http://www.w3.org/2000/svg}"
SHAPES = ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan")
PART = re.compile(
    r"<(g|text)\b[^>]*(?<!/)>[^<]*(?:<(?!/?(?:g|text)\b)[^<]*)*</\1\s*>",
)
"""Group or text, with neither in it."""

ELEMENTS = frozenset(("svg", "g", "title", "desc", *SHAPES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Picture of one moment.

    Attributes:
        text: Lines for a terminal of `NUM_COLUMNS`, ASCII but for names. Empty: there are none.
        svg: Whole SVG without styles and scripts. Empty: there is none.
        png: Pixels as a PNG file in base64, of an environment that renders itself. Empty: there are
            none.
    """

    text: str = ""
    svg: str = ""
    png: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Game that was played, to be played again.

    Attributes:
        spec: Environment; id and kwargs are taken from here.
        seed: Seed of the episode, from `arena.envs.chance.episode_seed`.
        turns: Draws of the agents that decided in each step, as rows of
            `arena.spaces`: an integer from 0, or numbers. Of a game that goes on, a
            list to which each step is added before its moment is asked for.
        launch_directory: Directory put first on ``sys.path``.
        possible_agents: ``environment.possible_agents``.
        continuous_actions: ``environment.continuous_actions``.
        named: Actions of which the names are wanted, by agent, at each moment from the start: JSON
            of each, and the name that it has if the game has none.
        drawing: Function that draws it, as ``package.module:function``. None: Arena's own, or the
            environment renders itself.
        viewer: Agent that plays and sees no other's cards until the end. None: all are seen.
    """

    spec: EnvironmentSpec
    seed: int
    turns: Sequence[Mapping[str, int | list[float]]]
    launch_directory: str
    possible_agents: list[str] | None = None
    continuous_actions: ContinuousActions = "squashed"
    named: Sequence[Mapping[str, Mapping[str, str]]] = ()
    drawing: str | None = None
    viewer: str | None = None


Cell = tuple[int, int]
"""Row and column of a cell of a board."""

ANY = -1
"""Row of a cell of which the column alone counts."""


class Move(NamedTuple):
    """Move that an agent can make, or has made.

    Attributes:
        name: Name as people type it.
        cells: Cells that are pointed at one after the other. Empty: it has none.
        words: Name in the game's own words. Empty: `name`.
    """

    name: str
    cells: tuple[Cell, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Moment of a game that is played again.

    Attributes:
        env: Live environment: a PettingZoo environment with its wrappers, a batched game of one,
            or a ``pyspiel.State``. A drawing only reads it.
        environment_id: Its id.
        agents: All agents.
        turns: All actions until now, in the environment's own form: those of each step by agent.
        did: Moves of the last step, as far as the game has names for them.
        returns: Sum of each agent's rewards until now. Empty: nobody has acted.
        viewer: Agent whose cards alone are seen. None: all are.
    """

    env: Any
    environment_id: str
    agents: tuple[str, ...]
    turns: Sequence[Mapping[str, Any]] = ()
    did: tuple[Move, ...] = ()
    returns: Mapping[str, float] = field(default_factory=dict)
    viewer: str | None = None

    def hidden(self, hands: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        """Return each agent's cards, ``?`` in place of those that are not seen."""
        named = zip(self.agents, hands, strict=True)
        return [hand if self.viewer in (None, agent) else "?" * len(hand) for agent, hand in named]

    @property
    def move(self) -> str:
        """Moves of the last step in the game's own words; empty if it has none."""
        return ", ".join(move.words or move.name for move in self.did)

    @property
    def last(self) -> list[Cell]:
        """Cells of these moves."""
        return [cell for move in self.did for cell in move.cells]

    @property
    def moves(self) -> list[tuple[int, Any]]:
        """Indices of the agents that acted, with their actions, in order."""
        index = {agent: at for at, agent in enumerate(self.agents)}
        return [(index[agent], action) for turn in self.turns for agent, action in turn.items()]

    def caption(self, move: str | None = None) -> str:
        """Return the number of the last step, its agents and what they did (None: `move`)."""
        if not self.turns:
            return "start"
        return (
            f"{len(self.turns)}. {', '.join(self.turns[-1])}: {self.move if move is None else move}"
        )


Drawing = Callable[[Moment], Picture]
"""Function that draws a moment. It changes nothing, and equal moments give equal pictures."""


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element: ``stroke_width`` is ``stroke-width``, ``class_`` is ``class``.

    Args:
        name: Its name.
        content: Elements and escaped text in it.
        attributes: Attributes, which are escaped here; numbers are rounded to two digits.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>"


def printable(text: str, *, width: int) -> str:
    """Return one line of a text of anybody: no control characters, cut off at a width."""
    # XML and terminals accept no control characters, and some change the direction of text.
    line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def check_svg(text: str) -> None:
    """Refuse an SVG that does more than show shapes and text.

    Raises:
        ValueError: If it is none, or has an element or an attribute that is not known to be safe.
    """
    # Without declarations there are no entities.
    if "<!" in text or "<?" in text:
        raise ValueError("an SVG must have no declarations")
    try:
        root = fromstring(text)
    except ParseError as error:
        raise ValueError(f"an SVG must be XML: {error}") from None
    for element in root.iter():
        name = element.tag.removeprefix(SPACE)
        if name not in ELEMENTS:
            raise ValueError(f"an SVG must be shapes and text, got the element {name!r:.50}")
        for key, value in element.attrib.items():
            if key.startswith("on") or key in ("style", "href") or "}" in key or "url(" in value:
                raise ValueError(f"an SVG must have no styles, links and scripts, got {key!r:.50}")


def shared(pictures: Sequence[str]) -> list[str]:
    """Return the SVGs of one page, of which each group and text that comes again is drawn once.

    The first one defines them, all show them by ``use``: of a board that is shown after each move
    most stays as it was.

    Args:
        pictures: SVGs that `check_svg` has let pass; empty ones stay so.
    """
    # The separator is a character that no XML contains.
    page, names = "\0".join(pictures), dict[str, str]()

    def used(found: re.Match[str]) -> str:
        name = names.get(found[0])
        return f'<use href="#{name}"/>' if name else found[0]

    while again := [
        part
        for part, number in Counter(one[0] for one in PART.finditer(page)).items()
        if number > 1
    ]:
        names |= {part: f"d{at}" for at, part in enumerate(again, len(names))}
        page = PART.sub(used, page)
    if not names:
        return list(pictures)
    # Each part gets a group of its own, because it may have an id already.
    defined = "".join(tag("g", part, id=name) for part, name in names.items())
    head, closing, rest = page.partition("</svg")
    return f"{head}{tag('defs', defined)}{closing}{rest}".split("\0")


def _value(value: object) -> str:
    # Rounding avoids -0 and 3.0000000000000004, so that equal pictures have equal bytes.
    return f"{round(value, 2) + 0.0:g}" if isinstance(value, float) else str(value)
