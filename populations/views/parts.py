"""Parts of a view, the same for every medium: columns with kinds, tables, lines, trees, sections.

Values are not formatted here: a column's kind says what a value means, and `tools.show` renders it
for terminal, page or file.
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
    "game",  # id of a recorded game
    "players",  # names, one after the other
    "versus",  # names of the players of a match
    "elo",  # rating without decimals
    "signed",  # difference with its sign, without decimals
    "interval",  # 95% interval of the rating with this key
    "error",  # point with a rating and half of its interval
    "ranks",  # ranks that a player may have
    "count",  # number of things in few characters
    "share",  # share or score, three decimals
    "shares",  # 95% interval of the share with this key
    "percent",  # share in percent, one decimal
    "percents",  # share in whole percent
    "parameter",  # hyperparameter
    "duration",  # seconds
    "time",  # time of the day in UTC
    "since",  # time between two times
    "digest",  # first characters of a digest
    "exact",  # value as a configuration writes it
    "listed",  # object, as names and values
    "sentence",  # text that may take several lines
    "event",  # row of an event: its sentence, or its data
    "curve",  # ratings over agent steps, drawn with characters
    "lines",  # lines, one after the other
    "path",  # lines joined by arrows, such as a lineage
]

MAX_CELL = 28
"""Default maximum width of a cell in characters."""

SIDES = ("first", "second")
"""Keys of the two runs in rows of a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Space and other properties of the medium that shows a view.

    Attributes:
        width: Characters of a line.
        is_wide: Whether everything is shown, however wide.
        populations: Names of the run's populations.
        is_ascii: Whether the stream's encoding lacks blocks and arrows.
        limit: Requested maximum number of rows of a table; None for as many as fit.
        more: Option of the command line that shows what does not fit.
    """

    width: int
    is_wide: bool = False
    populations: tuple[str, ...] = ()
    is_ascii: bool = False
    limit: int | None = None
    more: str = "--wide"

    def cut(self, text: str, most: int) -> str:
        """Return a text shortened to ``most`` characters, unless ``is_wide``."""
        if self.is_wide or len(text) <= most:
            return text
        dots = "..." if self.is_ascii else "…"
        return text[: max(most - len(dots), 0)] + dots


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    Attributes:
        key: Key of the value in a row.
        kind: Kind of the values.
        title: Title; empty uses the key.
        drop: Without room, the column with the highest number is left out first; 0 is never.
        is_label: Whether it identifies the row, so that it is shown even if it is constant.
        most: Maximum width of a cell in characters.
        pair: Key of two players in a row; on a page, a cell links to their games. Empty: no link.
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
        template: Text with a field for each value, ``{key}`` or ``{key:kind}``, in pieces separated
            by ``|``. A piece is left out if one of its values is unknown.
        row: Values by key.
        most_lines: Maximum number of lines on a screen; 0 for no limit.
        hint: Arguments of the command line that show more; only terminals show it.
    """

    template: str
    row: Row = field(default_factory=dict)
    most_lines: int = 0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of rows.

    Attributes:
        columns: Columns, in order; a column for which no row has a value is left out.
        rows: Rows, in order.
        copied: Template of the text that a page's button copies for a row; empty for no button.
        anchor: Template of a row's fragment in a page's address; empty for none.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    copied: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Pairs:
    """List of names, each with a value.

    Attributes:
        rows: Names and values; an empty name continues the row above.
    """

    rows: Sequence[tuple[str, Line]]


@dataclass(frozen=True, slots=True)
class Beside:
    """Table of the values of two runs, side by side.

    Attributes:
        labels: Names of the runs.
        rows: Key, kind, value of the first run, and value of the second run.
    """

    labels: Sequence[str]
    rows: Sequence[tuple[str, Kind, object, object]]


@dataclass(frozen=True, slots=True)
class Tree:
    """Line with branches below it.

    Attributes:
        line: The line.
        branches: Trees below the line, in order.
    """

    line: Line
    branches: list[Tree] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Part of a view under one title.

    Attributes:
        title: Title; None if it continues the section above.
        body: Table or another part; None if the section has only lines.
        above: Lines between title and body.
        below: Lines below the body.
        command: Shell command for users to copy; empty for none.
        about: Paragraph that explains how to read the section; only pages show it.
        chart: Specification of a chart, or a picture, for media that can draw; None for neither.
        csv: Name of its rows as CSV; empty for the rows of the view.
        is_alert: Whether it is highlighted because it needs attention.
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
    """Return some attributes of an object as a dict; the values are None if the object is None."""
    return {key: None if value is None else getattr(value, key) for key in keys}


def hidden(number: int, what: str, *, hint: str = "--wide shows all") -> list[Line]:
    """Return a line with the number of rows that are not shown; no line if all are."""
    line = Line(f"{{hidden}} {what} hidden", {"hidden": number}, hint=hint)
    return [line] if number > 0 else []


def said(text: object, *, most_lines: int = 0) -> Line:
    """Return a line with a finished text, which may have braces."""
    return Line("{text}", {"text": text}, most_lines)


def player(key: str, title: str = "", *, drop: int = 0) -> Column:
    """Return a column of players' names, which is a label of its rows."""
    return Column(key, "player", title, drop=drop, is_label=True)
