"""Sections of a view as blocks of a page: cells with links, for templates that escape every text.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlencode

from arena.drawings.picture import Picture, shared
from arena.errors import ArenaError
from arena.files import without_directories
from arena.processes.paced_log import OneASecond
from populations.views.parts import (
    Beside,
    Column,
    Kind,
    Line,
    Pairs,
    Room,
    Row,
    Section,
    Table,
    Tree,
)
from populations.views.texts import moment, plain

from .text import side_texts
from .values import LEFT, fields_of, line_text, text, value_of

logger = logging.getLogger(__name__)
# The same problem is logged at most once a second, because pages ask every few seconds.
logger.addFilter(OneASecond())

WIDTH = 140
"""Characters of a line of a page, about."""

MAX_TEXT = 1000
"""Characters of a text; only hostile ones are longer. CSV and JSON have all of it."""

MAX_TITLE = 200
"""Characters of a text that is shown on demand."""

MAX_ROWS = 200
"""Rows of one page of a long table."""

LONG = 40
"""Characters from which on a cell's text is folded."""

GAME = "game-"
"""First part of the name of a game's page: its id follows, without dots."""

POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")


class Cell(NamedTuple):
    """Text of a page.

    Attributes:
        text: Displayed text.
        href: Address that it leads to; empty: none.
        title: Full text, where the displayed one is short.
        time: Time in UTC (ISO 8601), to which the reader's own is added; empty: none.
        number: Number by which rows are sorted. None: by the text.
    """

    text: str
    href: str = ""
    title: str = ""
    time: str = ""
    number: float | None = None

    @property
    def is_long(self) -> bool:
        """Return whether its text is folded."""
        return len(self.text) > LONG


Cells = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class BlockRow:
    """Row of a block's table.

    Attributes:
        cells: For each column its texts.
        anchor: Name in addresses.
        copied: The row as one line of text, to copy.
    """

    cells: Sequence[Cells]
    anchor: str = ""
    copied: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Section of a page.

    Attributes:
        heading: Its heading; empty: it goes on with the block above.
        about: Paragraph about how to read it.
        above: Lines before its body.
        head: Name of each column, and whether it has numbers.
        rows: Rows of its table.
        tree: Lines of its tree, with their depths.
        below: Lines after its body.
        command: Command to copy.
        chart: Chart, whose table is folded below it. None: it has none.
        picture: Picture, beside which its table stands. None: it has none.
        total: Rows that there are.
        csv: Address of all of them; empty: none.
        previous: Address of the rows before these; empty: none.
        following: Address of the rows after these; empty: none.
        is_alert: Whether it asks for attention.
        is_wrapped: Whether its cells are folded in their columns.
    """

    heading: str = ""
    about: str = ""
    above: Sequence[Cells] = ()
    head: Sequence[tuple[Cell, bool]] = ()
    rows: Sequence[BlockRow] = ()
    tree: Sequence[tuple[int, Cells]] = ()
    below: Sequence[Cells] = ()
    command: str = ""
    chart: object = None
    picture: Picture | None = None
    total: int = 0
    csv: str = ""
    previous: str = ""
    following: str = ""
    is_alert: bool = False
    is_wrapped: bool = False

    @property
    def anchor(self) -> str:
        """Name in addresses: without figures, which change."""
        return slug(self.heading.partition(":")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses of pages, relative to the page itself, so that any folder and proxy will do.

    Attributes:
        base: Way to the run's folder, such as ``four/`` from the root, or empty within it.
        root: Way to the folder of all runs.
        is_static: Whether pages are files: numbers of pages are part of their name then.
        names: Files of players that have a page, by player; in a static export not all have one.
        games: Games that have a page; None: all.
    """

    base: str = ""
    root: str = "../"
    is_static: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    games: Collection[str] | None = None

    def page(self, name: str, *, number: int = 1, anchor: str = "", **query: str) -> str:
        """Return the address of a page, or of one of its numbered parts."""
        query = {key: value for key, value in query.items() if value}
        if number > 1 and self.is_static:
            name = f"{name}-{number}"
        elif number > 1:
            query["page"] = str(number)
        asked = f"?{urlencode(query)}" if query and not self.is_static else ""
        return f"{self.base}{name}.html{asked}" + (f"#{anchor}" if anchor else "")

    def game(self, game: str) -> str:
        """Return the address of a game's page; empty if it has none."""
        return self.page(game_page(game)) if self.games is None or game in self.games else ""

    def pair(self, player: str, opponent: str) -> str:
        """Return the address of the games of two players; empty in files, which choose no rows."""
        return "" if self.is_static else self.page("games", player=player, opponent=opponent)

    def player(self, player: str) -> str:
        """Return the address of a player's page; empty if it has none."""
        # player/p001#3 is policy and generation; weights without a page link to their policy's
        # page.
        policy = re.split("[#@]", player)[0]
        name = self.names.get(player) or self.names.get(policy, "")
        return self.page(name) if name else ""


def game_page(game: str) -> str:
    """Return the name of a game's page."""
    return f"{GAME}{game.replace('.', '-')}"


def page_name(player: str, weights: str | None) -> str:
    """Return the name of a player's page: a policy's id, or the digest of a ghost's weights."""
    if POLICY.fullmatch(player):
        return player.replace("/", "-")
    return f"weights-{weights[:16]}" if weights else ""


def slug(written: str) -> str:
    """Return a text as a name in addresses."""
    return re.sub(r"[^a-z0-9]+", "-", written[:MAX_TITLE].lower()).strip("-")


def short(written: object, most: int = MAX_TITLE) -> str:
    """Return a text of users or environments: safe, and short."""
    safe = plain(str(written)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypertext:
    """Medium of pages: the address of one, and the way from it to others.

    Attributes:
        links: Addresses of other pages.
        populations: Names of the run's populations.
        page: Name of the page in addresses.
        number: Part of its long tables, from 1.
        query: Filters.
        second: Addresses of pages of the second run of a comparison.
    """

    links: Links = Links()
    populations: tuple[str, ...] = ()
    page: str = ""
    number: int = 1
    query: Mapping[str, str] = field(default_factory=dict)
    second: Links | None = None

    @property
    def room(self) -> Room:
        """Room of a page."""
        return Room(width=WIDTH, populations=self.populations)

    def blocks(self, sections: Iterable[Section], *, csv: str = "") -> list[Block]:
        """Return the blocks of sections.

        Args:
            sections: Sections.
            csv: View that has all rows of their tables; empty: none.
        """
        blocks = [self._block(section, csv) for section in sections]
        drawn = shared([block.picture.svg if block.picture else "" for block in blocks])
        return [
            replace(block, picture=replace(block.picture, svg=svg)) if block.picture else block
            for block, svg in zip(blocks, drawn, strict=True)
        ]

    def _block(self, section: Section, csv: str) -> Block:
        title = section.title
        csv = section.csv or csv
        block = Block(
            heading=self._heading(title) if title is not None else "",
            about=section.about,
            above=[self.line(line) for line in section.above],
            below=[self.line(line) for line in section.below],
            command=short(section.command, MAX_TEXT),
            chart=None if isinstance(section.chart, Picture) else section.chart,
            picture=section.chart if isinstance(section.chart, Picture) else None,
            csv=f"{self.links.base}{csv}.csv" if csv else "",
            is_alert=section.is_alert,
        )
        match section.body:
            case Table():
                return self._with_table(block, section.body)
            case Pairs(rows):
                made = [BlockRow([[Cell(short(name))], self.line(line)]) for name, line in rows]
                return replace(block, rows=made, total=len(made))
            case Beside():
                return self._with_both(block, section.body)
            case Tree(line):
                tree = [*self._branches(section.body)]
                return replace(block, heading=self._heading(line), tree=tree)
        return block

    def _heading(self, title: Line) -> str:
        written = short(line_text(title, self.room))
        # A title that begins with a name keeps the name's spelling.
        return written if title.template[:1] == "{" else written[:1].upper() + written[1:]

    def _with_table(self, block: Block, table: Table) -> Block:
        columns = [
            one
            for one in table.columns
            # A curve is shown as a chart instead.
            if one.kind != "curve"
            and any(value_of(one.key, one.kind, row) is not None for row in table.rows)
        ]
        start = (self.number - 1) * MAX_ROWS
        shown = table.rows[start : start + MAX_ROWS]
        total = len(table.rows)
        return replace(
            block,
            head=[
                (Cell(short(one.name.strip() or one.key)), one.kind not in LEFT) for one in columns
            ],
            rows=[
                BlockRow(
                    [self.cells(one, row) for one in columns],
                    slug(line_text(Line(table.anchor, row), self.room)) if table.anchor else "",
                    short(line_text(Line(table.copied, row), self.room), MAX_TEXT),
                )
                for row in shown
            ],
            total=total,
            previous=self._numbered(self.number - 1) if self.number > 1 else "",
            following=self._numbered(self.number + 1) if start + MAX_ROWS < total else "",
        )

    def _numbered(self, number: int) -> str:
        return self.links.page(self.page, number=number, **self.query)

    def _with_both(self, block: Block, beside: Beside) -> Block:
        bases = [self.links.base, self.second.base if self.second else self.links.base]
        labels = [
            (Cell(short(label), href=f"{base}index.html"), False)
            for label, base in zip(beside.labels, bases, strict=True)
        ]
        rows = [
            BlockRow(
                [[Cell(short(key))], *([Cell(one)] for one in side_texts(kind, both, self.room))]
            )
            for key, kind, *both in beside.rows
        ]
        head = [(Cell(""), False), *labels] if rows else []
        return replace(block, head=head, rows=rows, total=len(rows), is_wrapped=True)

    def _branches(self, tree: Tree) -> Iterator[tuple[int, Cells]]:
        waiting = [(0, branch) for branch in reversed(tree.branches)]
        while waiting:
            depth, branch = waiting.pop()
            yield depth, self.line(branch.line)
            waiting += [(depth + 1, one) for one in reversed(branch.branches)]

    def cells(self, column: Column, row: Row) -> Cells:
        """Return the texts of a cell of a table."""
        links = self.second if column.key.startswith("second.") and self.second else self.links
        value = value_of(column.key, column.kind, row)
        cells = self._value(value, column.kind, column.most, links)
        if column.pair and value is not None:
            title = short(f"games of {' and '.join(row[column.pair])}")
            return [one._replace(href=links.pair(*row[column.pair]), title=title) for one in cells]
        return cells

    def line(self, line: Line) -> Cells:
        """Return the texts of a line."""
        found: list[Cell] = []
        for before, key, kind in fields_of(line):
            if before:
                found.append(Cell(before))
            if key:
                found += self._value(value_of(key, kind, line.row), kind, MAX_TEXT, self.links)
        return found

    def _value(self, value: object, kind: Kind, most: int, links: Links) -> Cells:
        if kind in ("lines", "path") and isinstance(value, Sequence):
            between = Cell(" → " if kind == "path" else ", ")
            lines = [self.line(line) for line in value]
            return [one for line in lines for one in (between, *line)][1:]
        if kind in ("players", "versus") and isinstance(value, Sequence):
            between = Cell(" v " if kind == "versus" else ", ")
            names = [self._value(one, "player", most, links)[0] for one in value]
            return [one for name in names for one in (between, name)][1:]
        written = short(text(value, kind, self.room), MAX_TEXT)
        if kind == "player" and value is not None:
            return [Cell(written, href=links.player(str(value)), title=short(value))]
        if kind == "game":
            return [Cell(written, href=links.game(str(value)))]
        if kind == "time":
            return [self._time(value)]
        number = float(value) if isinstance(value, int | float) else None
        full = f"{value:,}" if isinstance(value, int) else short(value)
        is_cut = kind in ("count", "digest") and full != written
        return [Cell(written, title=full if is_cut else "", number=number)]

    def _time(self, value: object) -> Cell:
        found = moment(value)
        # Times have no fractions of a second, which a table of events does not need.
        if found is None:
            return Cell("-")
        return Cell(f"{found:%Y-%m-%d %H:%M:%S}", time=found.isoformat())


def guarded(heading: str, make: Callable[[], Iterable[Block]]) -> list[Block]:
    """Return the blocks of a part of a page; of one that fails, a block that says so."""
    try:
        return list(make())
    # The error stays within this part: rows and files of a run may hold anything.
    except Exception as error:
        return [failed(heading, error)]


def in_words(error: Exception) -> tuple[str, Exception | None]:
    """Return an error in words, with its kind where those are not meant for readers; and the error
    if its traceback is needed: of one that Arena raises by itself it is not.
    """
    if isinstance(error, ArenaError):
        return str(error), None
    return f"{type(error).__name__}: {error}", error


def failed(heading: str, error: Exception) -> Block:
    """Return a block in the place of a part that cannot be shown."""
    said, cause = in_words(error)
    logger.warning("%s cannot be shown: %s", heading, said, exc_info=cause)
    # Directories are removed from the message, because readers may be on another machine.
    why = short(without_directories(said))
    return Block(heading=heading, about=f"This part cannot be shown: {why}", is_alert=True)
