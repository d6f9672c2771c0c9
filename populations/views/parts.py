"""Parts of a view, the same for every medium: columns with kinds, tables, lines, trees, sections.

Nothing here is text yet: a kind says what a value is, and `tools.show` how a medium shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Row = Mapping[str, Any]
Document = Mapping[str, Any]

Kind = Literal[
    "value",  # any value, as numbers at the right
    "word",  # any value, as texts at the left
    "mark",  # character behind a name
    "player",  # name of a player or learner
    "game",  # id of a game that is kept
    "players",  # names, one after the other
    "versus",  # names of those that play against each other
    "elo",  # rating without decimals
    "signed",  # difference with its sign, without decimals
    "interval",  # 95% interval of the rating of this key
    "error",  # point with a rating and half of its interval
    "ranks",  # ranks that a player may have
    "count",  # number of things in few characters
    "share",  # share or score, three decimals
    "shares",  # 95% interval of the share of this key
    "percent",  # share in percent, one decimal
    "percents",  # share in whole percent
    "parameter",  # hyperparameter
    "duration",  # seconds
    "time",  # time of the day in UTC
    "since",  # time between two times
    "digest",  # first characters of a digest
    "exact",  # value as a configuration writes it
    "listed",  # object, as names and values
    "sentence",  # text in several lines if need be
    "event",  # row of an event: its sentence, or its data
    "curve",  # ratings over agent steps, drawn with characters
    "lines",  # lines, one after the other
    "path",  # lines, each of which follows from the one before
]

MAX_CELL = 28
"""Most characters of a name or another cell that is not the text of a row."""

SIDES = ("first", "second")
"""Runs of a comparison, as its rows name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Room that a medium has for a view.

    Attributes:
        width: Characters of a line.
        is_wide: Whether everything is shown, however wide.
        populations: Names of the run's populations.
        is_ascii: Whether the stream's encoding lacks blocks and arrows.
        limit: Most rows of a table that were asked for. None: what there is room for.
        more: Word for the command line that shows what there is no room for.
    """

    width: int
    is_wide: bool = False
    populations: tuple[str, ...] = ()
    is_ascii: bool = False
    limit: int | None = None
    more: str = "--wide"

    def cut(self, text: str, most: int) -> str:
        """Return a text shortened at its end to so many characters, unless everything is shown."""
        if self.is_wide or len(text) <= most:
            return text
        dots = "..." if self.is_ascii else "…"
        return text[: max(most - len(dots), 0)] + dots


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    Attributes:
        key: Key of a row.
        kind: Kind of its values.
        title: Title; empty: the key.
        drop: Column with the highest is left out first where there is no room; 0: never left out.
        is_label: Whether it says what the row is about, so that it stays though it is constant.
        most: Most characters of a cell.
        pair: Key of the two players whose games a page's cells lead to; empty: they lead nowhere.
    """

    key: str
    kind: Kind = "value"
    title: str = ""
    drop: int = 0
    is_label: bool = False
    most: int = MAX_CELL
    pair: str = ""

    @property
    def name(self) -> str:
        """Title of the column."""
        return self.title or self.key.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Line:
    """Line of text about a row.

    Attributes:
        template: Text with a field for each value, ``{key}`` or ``{key:kind}``. Pieces behind a
            ``|`` stand where all their values are known.
        row: Values by key.
        most_lines: Most lines of a screen that it takes; 0: as many as it needs.
        hint: Words for a command line that show more; other media leave them out.
    """

    template: str
    row: Row = field(default_factory=dict)
    most_lines: int = 0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of rows.

    Attributes:
        columns: Columns, in order; ones that no row has are left out.
        rows: Rows, in order.
        copied: Template of a row as one line of text, where people can copy it; empty: none.
        anchor: Template of a row's name in addresses; empty: it has none.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    copied: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with a value each.

    Attributes:
        rows: Name and value of each; a name that is empty goes on with the one above.
    """

    rows: Sequence[tuple[str, Line]]


@dataclass(frozen=True, slots=True)
class Beside:
    """Values of two runs beside each other.

    Attributes:
        labels: Names of the runs.
        rows: Key, kind, and the value of each run.
    """

    labels: Sequence[str]
    rows: Sequence[tuple[str, Kind, object, object]]


@dataclass(frozen=True, slots=True)
class Tree:
    """Line with what follows from it.

    Attributes:
        line: The line.
        branches: Lines that follow from it, in order.
    """

    line: Line
    branches: list[Tree] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Part of a view under one title.

    Attributes:
        title: Its title. None: it goes on with what is above.
        body: Table or another part. None: lines alone.
        above: Lines between title and body.
        below: Lines below the body.
        command: Command of a shell, to copy.
        about: Paragraph about how to read it, where there is room for that.
        chart: Specification of a chart, where charts can be drawn, or a picture. None: neither.
        csv: Name of its rows as CSV; empty: those of the view.
        is_alert: Whether it asks for attention.
    """

    title: Line | None = None
    body: Table | Pairs | Beside | Tree | None = None
    above: Sequence[Line] = ()
    below: Sequence[Line] = ()
    command: str = ""
    about: str = ""
    chart: object = None
    csv: str = ""
    is_alert: bool = False


def picked(value: object, *keys: str) -> dict[str, Any]:
    """Return some attributes of a row as documents have them; of None each is None."""
    return {key: None if value is None else getattr(value, key) for key in keys}


def hidden(number: int, what: str, *, hint: str = "--wide shows all") -> list[Line]:
    """Return a line about rows that are not shown, if there are any."""
    line = Line(f"{{hidden}} {what} hidden", {"hidden": number}, hint=hint)
    return [line] if number > 0 else []


def said(text: object, *, most_lines: int = 0) -> Line:
    """Return a line of a text that is there already."""
    return Line("{text}", {"text": text}, most_lines)


def player(key: str, title: str = "", *, drop: int = 0) -> Column:
    """Return a column of players' names."""
    return Column(key, "player", title, drop=drop, is_label=True)
