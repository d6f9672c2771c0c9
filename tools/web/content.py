"""Parts of a page: tables, charts and links, as plain data for the templates.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from arena.files import without_directories
from arena.processes.paced_log import OneASecond
from populations.views.texts import plain

from ..league.renderers.look import text_of
from .making import in_words, unknown

logger = logging.getLogger(__name__)
# A reader asks every few seconds.
logger.addFilter(OneASecond())

MAX_TEXT = 200
"""Characters of one label. CSV and JSON have all of it."""

MAX_LINE = 40
"""Characters from which on a cell's text is folded."""

POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Cell of a table.

    Attributes:
        text: Displayed text.
        href: Address that it leads to; empty: none.
        title: Full text, where the displayed one is short.
        is_number: Whether it is aligned as a number.
        time: Time in UTC (ISO 8601), to which the reader's own is added; empty: none.
    """

    text: str
    href: str = ""
    title: str = ""
    is_number: bool = False
    time: str = ""

    @property
    def is_long(self) -> bool:
        """Whether its text is folded."""
        return len(self.text) > MAX_LINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Row of a table.

    Attributes:
        cells: Its cells.
        anchor: Name in addresses.
        line: The row as one line of text, to copy.
    """

    cells: Sequence[Cell]
    anchor: str = ""
    line: str = ""

    @property
    def is_long(self) -> bool:
        """Whether it is a paragraph on narrow screens: a cell of it is folded."""
        return any(cell.is_long for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table, or one page of it.

    Attributes:
        columns: Headings.
        rows: Rows that are shown.
        total: Rows that there are.
        csv: Address of all of them as CSV; empty: none.
        previous: Address of the rows before these; empty: none.
        following: Address of the rows after these; empty: none.
        is_wrapped: Whether all its texts are folded in their columns, which stay beside each other
            on narrow screens.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    total: int = 0
    csv: str = ""
    previous: str = ""
    following: str = ""
    is_wrapped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Chart, drawn by ``static/charts.js``: a kind that it knows, and that kind's data."""

    kind: str
    data: Mapping[str, object]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Section of a page.

    Attributes:
        heading: Its heading, and by it its name in addresses.
        note: Paragraph below the heading.
        lines: Lines of text that can be pasted.
        chart: Chart; its table is folded below it.
        table: Table.
        is_alert: Whether it wants attention.
    """

    heading: str
    note: str = ""
    lines: Sequence[str] = ()
    chart: Chart | None = None
    table: Table | None = None
    is_alert: bool = False

    @property
    def anchor(self) -> str:
        """Name in addresses."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


def part(heading: str, make: Callable[[], Block | Iterable[Block]]) -> list[Block]:
    """Return the sections of a part of a page; of one that fails, a section that says so."""
    try:
        made = make()
        return [made] if isinstance(made, Block) else list(made)
    # The boundary of a part: a run's rows and files may hold anything.
    except Exception as error:
        return [failed(heading, error)]


def failed(heading: str, error: Exception) -> Block:
    """Return a section in the place of a part that cannot be shown."""
    said = in_words(error)
    logger.warning("%s cannot be shown: %s", heading, said, exc_info=unknown(error))
    # Readers may be elsewhere.
    why = shown(without_directories(said))
    return Block(heading=heading, note=f"This part cannot be shown: {why}", is_alert=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Title and sections of a page.

    Attributes:
        title: Its title.
        blocks: Its sections.
        filters: Fields of its form.
        parts: Addresses of the page's parts by their titles, if it is divided by a subject.
        part: Title of this part.
    """

    title: str
    blocks: Sequence[Block]
    filters: Sequence[Filter] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Field by which rows are chosen."""

    name: str
    label: str
    value: str
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses of pages, relative to the page itself, so that any folder and proxy will do.

    Attributes:
        base: Way to the run's folder, such as ``four/`` from the root, or empty within it.
        is_static: Whether pages are files: numbers of pages are part of their name then.
        names: Files of players that have a page, by player; in a static export not all have one.
    """

    base: str = ""
    is_static: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def page(self, name: str, *, number: int = 1, anchor: str = "", **query: str) -> str:
        """Return the address of a page, or of one of its numbered parts."""
        query = {key: value for key, value in query.items() if value}
        if number > 1 and self.is_static:
            name = f"{name}-{number}"
        elif number > 1:
            query["page"] = str(number)
        asked = f"?{urlencode(query)}" if query and not self.is_static else ""
        return f"{self.base}{name}.html{asked}" + (f"#{anchor}" if anchor else "")

    def player(self, player: str, *, anchor: str = "") -> str:
        """Return the address of a player's page; empty if it has none."""
        name = self.names.get(player, "")
        return self.page(name, anchor=anchor) if name else ""


def page_name(player: str, weights: str | None) -> str:
    """Return the name of a player's page: a policy's id, or the digest of a ghost's weights."""
    if POLICY.fullmatch(player):
        return player.replace("/", "-")
    return f"weights-{weights[:16]}" if weights else ""


def shown(text: object, *, most: int = MAX_TEXT) -> str:
    """Return a text or number as it is displayed: safe, and short."""
    if isinstance(text, int) and not isinstance(text, bool):
        return f"{text:,}"
    safe = text_of(text) if not isinstance(text, str) else plain(text[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def cell(value: object, *, href: str = "") -> Cell:
    """Return the cell of a value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text=shown(value), href=href, is_number=is_number)


def moment(time: object) -> Cell:
    """Return the cell of a time in UTC."""
    text = shown(str(time or ""), most=MAX_LINE)
    # To the second: a table of events is no stopwatch.
    return Cell(text=f"{text[:19].replace('T', ' ')} UTC" if text else "-", time=text)


def facts(values: Mapping[str, object]) -> Table:
    """Return a table of names and values."""
    rows = [Row(cells=[cell(key), _fact(value)]) for key, value in values.items()]
    return Table(columns=["", "value"], rows=rows, total=len(rows))


def _fact(value: object) -> Cell:
    # Left-aligned, numbers too: those below each other have nothing in common.
    return value if isinstance(value, Cell) else Cell(text=shown(value))
