"""The page of the journal's tables."""

from __future__ import annotations

import inspect
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from docs.generate.markdown import code, from_docstring, table
from docs.generate.repository import attribute_docs
from populations.records.tables import SEAL, TABLES, SqlTable

SEAL_MEANING = "Checksum of the row's values: a row that does not fit it is damaged."


def page() -> str:
    """Return a table of columns for each table of the journal."""
    return "\n".join(map(_section, TABLES))


def columns(of: SqlTable[Any]) -> list[tuple[str, str, str]]:
    """Return name, SQL type and meaning of each column."""
    meanings = {SEAL: SEAL_MEANING}
    for row_type in of.row_type.__mro__:
        # Base classes of msgspec and Python document no columns.
        if row_type.__module__.startswith(("arena.", "populations.")):
            meanings |= attribute_docs(Path(inspect.getfile(row_type)), row_type.__name__)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(of.create)
        # The columns are: index, name, type, NOT NULL, default, index in the primary key.
        stored = connection.execute(f"PRAGMA table_info({of.name})").fetchall()
    return [
        (name, _type(type_, required=bool(required), in_key=bool(key)), meanings[name])
        for _, name, type_, required, _, key in stored
        if name != "singleton"
    ]


def _type(name: str, *, required: bool, in_key: bool) -> str:
    return f"{name}, key" if in_key else name if required else f"{name} or NULL"


def _section(of: SqlTable[Any]) -> str:
    about = from_docstring((inspect.getdoc(of.row_type) or "").split("\n\n")[0])
    rows = [(code(name), type_, from_docstring(text)) for name, type_, text in columns(of)]
    return f"## `{of.name}`\n\n{about}\n\n{table(['column', 'type', 'meaning'], rows)}"
