"""Rows of a view as CSV, without formulas.

Tests: `tests/tools/web/test_app.py`.
"""

from __future__ import annotations

import csv
import io

from ..league.tables import _csv_cell
from ..league.views import VIEWS
from .runs import Document


def csv_text(view: str, document: Document) -> str:
    """Return the rows of a view's document, with every key that any of them has as a column."""
    rows = VIEWS[view].rows(document)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)
    return file.getvalue()
