"""Tables and headings in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Return text in the face of code."""
    return f"`{text}`" if text else ""


def cell(text: str) -> str:
    """Return text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells may have any text.

    Args:
        header: Titles of the columns.
        rows: Cells of each row, as many as there are titles.
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines) + "\n"


def from_docstring(text: str) -> str:
    """Return a docstring's text, with ``code`` in Markdown's marks."""
    return " ".join(text.replace("``", "`").split())
