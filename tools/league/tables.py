"""A view on a screen, and its rows as CSV.

Tests: `tests/tools/league/test_views.py`, `tests/tools/league/test_screens.py`.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from populations.views import notices
from populations.views.parts import Document, Room, Row
from populations.views.texts import plain
from populations.views.view import View
from populations.views.views import VIEWS

from ..show.text import drawn
from ..terminal.output import console
from .documents import Opened
from .narrowing import limited, lists_of, without_quiet

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..terminal.screen import Screen

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet takes for a formula."""

PIPE_WIDTH = 160
"""Columns of a file or pipe without the variable COLUMNS."""

OVERHEAD = 7
"""Lines of a screen that no rows are on: title, head, notes, prompt."""

WARNING_LINES = 3
LEAST_ROWS = 5
WIDEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """View that a person asked to see.

    Attributes:
        name: Name of the view.
        limit: Most rows of a table. None: what the screen takes.
        is_wide: Whether everything is shown, however wide.
        all_kinds: Whether kinds of events were chosen, so that none is left out.
        overhead: Lines of the screen that the view does not have.
    """

    name: str
    limit: int | None = None
    is_wide: bool = False
    all_kinds: bool = False
    overhead: int = OVERHEAD

    @property
    def view(self) -> View:
        """Shape of the view."""
        return VIEWS[self.name]


def fit_screen(screen: Screen, *, is_wide: bool) -> None:
    """Give a screen the width for views: the terminal's, that of COLUMNS, or a pipe's."""
    if is_wide:
        screen.width = WIDEST
    elif not screen.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        # rich assumes 80 columns for a pipe, which is too narrow for most views.
        screen.width = PIPE_WIDTH


def room_of(screen: Screen, *, populations: tuple[str, ...]) -> Room:
    """Return the room that a screen has."""
    return Room(width=screen.width, populations=populations, is_ascii=screen.options.ascii_only)


def rendered(shown: Shown, opened: Opened, screen: Screen) -> Iterator[RenderableType]:
    """Yield what people see of a view, and a last line about what they do not."""
    from rich.text import Text

    view, document = shown.view, opened.document
    available = replace(
        room_of(screen, populations=opened.populations), is_wide=shown.is_wide, limit=shown.limit
    )
    narrowed, quiet, hidden = view.on_screen(document), Counter[str](), 0
    if shown.name == "events" and not shown.all_kinds:
        narrowed, quiet = without_quiet(document)
    if view.limits:
        limit = _limit(shown, narrowed, screen, available)
        narrowed, hidden = limited(narrowed, view, limit)
    yield from drawn(view.sections(narrowed, available), available)
    if quiet:
        kinds = ", ".join(f"{count} {kind}" for kind, count in quiet.items())
        yield Text(f"hidden kinds: {kinds} (--kind shows one)")
    if left_out := document.get("left_out"):
        yield Text(f"lines that cannot be read, left out: {left_out}")
    if hidden:
        which = "earlier rows" if view.keeps_last else "more rows"
        yield Text(f"{hidden} {which} hidden (--limit N shows N)")


def _limit(shown: Shown, document: Document, screen: Screen, available: Room) -> int | None:
    """Return the most rows of a table; None: all."""
    if shown.limit is not None:
        return shown.limit
    # A pipe has room for everything.
    if not screen.is_terminal or shown.view.fits(document, available):
        return None
    # Tables beside each other share a screen.
    num_tables = max(len(lists_of(document[shown.view.limits])), 1)
    return max(room(shown, screen) // num_tables, LEAST_ROWS)


def room(shown: Shown, screen: Screen) -> int:
    """Return the rows of a view that a screen has room for, in all of its tables."""
    # Warnings stand below the tables, so they take lines, too.
    overhead = shown.overhead + (WARNING_LINES if shown.view.warns else 0)
    return max((screen.height - overhead) // shown.view.lines, LEAST_ROWS)


def print_view(shown: Shown, opened: Opened, *, warnings: Sequence[str] = ()) -> None:
    """Print a view, and warnings below it."""
    screen = console()
    fit_screen(screen, is_wide=shown.is_wide)
    for part in rendered(shown, opened, screen):
        screen.print(part)
    for warning in warnings:
        screen.print(warning)


def warning_lines(run: Path, view: str, document: Document) -> list[str]:
    """Return lines about champions, and ratings that mislead: documents have them as figures."""
    if not VIEWS[view].warns:
        return []
    # The view calibration has a fit, but neither cyclicity nor champions.
    anchors = (one for one in document.get("anchor", {}).values() if one is not None)
    return [
        *(f"champion {one['player']}: {notices.anchor_text(one)}" for one in anchors),
        *notices.misfit_warnings(document["fit"], run=run),
        *notices.cyclic_warnings(document.get("cyclicity", {}), run=run),
        *notices.unproven_lines(document.get("unproven", {}).values()),
    ]


def write_csv(rows: Sequence[Row], file: TextIO) -> None:
    """Write rows without formulas; every key that any of them has is a column."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)


def _csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula, and no terminal for a command."""
    if isinstance(value, Mapping | list | tuple):
        # A structured value is written as in --json, so that other programs can read it.
        value = json.dumps(value)
    if not isinstance(value, str):
        return value
    # A leading apostrophe keeps spreadsheets from evaluating a formula.
    return plain(f"'{value}" if value[:1] in FORMULA else value, keep="\n\r\t")
