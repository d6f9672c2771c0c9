"""Rows of a view as tables on a screen and as CSV.

Tests: `tests/tools/league/test_views.py`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence

from ..terminal.output import console
from .views import Cell, Document, Row, View, text_of

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet takes for a formula."""

WIDE = 160
TEXTS = ("player", "opponent", "parent", "kind", "subject", "key", "state")
"""Columns that are not wrapped."""


def print_view(name: str, view: View, document: Document, *, clear: bool) -> None:
    """Print a view's tables, on a cleared terminal if wanted."""
    from rich.table import Table

    rows = view.rows(document)
    columns = _columns(view, rows)
    screen = console()
    if not screen.is_terminal:
        # rich takes 80 columns for a pipe, in which no view fits.
        screen.width = WIDE
    if clear and screen.is_terminal:
        screen.clear()
    # In order of first rows, as the document has them.
    groups = dict.fromkeys(str(row.get("population", "")) for row in rows)
    for group in groups if view.is_grouped else [None]:
        table = Table(title=f"{name} {group or ''}".strip(), title_justify="left")
        for column in columns:
            table.add_column(column.replace("_", " "), no_wrap=column in TEXTS, overflow="fold")
        for row in rows:
            if group in (None, row.get("population")):
                shown = view.shown(row)
                table.add_row(*(text_of(shown.get(column)) for column in columns))
        screen.print(table)


def _columns(view: View, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a view's columns without those that say nothing in these rows."""
    # Every key that any row has, in order of appearance.
    columns = view.columns or tuple(dict.fromkeys(key for row in rows for key in row))
    if view.drops_missing:
        columns = tuple(name for name in columns if any(name in row for row in rows))
    # Most leagues have no exploiters, and most games no exploitability.
    if all(row.get("role") in (None, "main") for row in rows):
        columns = tuple(name for name in columns if name != "role")
    if all(row.get("exploitability") is None for row in rows):
        columns = tuple(name for name in columns if name != "exploitability")
    return columns


def print_csv(rows: Sequence[Row]) -> None:
    """Print rows with every key that any of them has as a column."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)


def _csv_cell(value: Cell) -> Cell:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in FORMULA:
        # Behind an apostrophe a spreadsheet calculates nothing.
        return "'" + value
    return value
