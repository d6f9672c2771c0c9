"""Tables for people.

Tests: `tests/tools/test_rate.py`, `tests/tools/test_simulate.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 10_000


def print_table(screen: Console, table: Table) -> None:
    """Print a table as wide as the terminal; in a file or pipe as wide as the table."""
    # rich would fold to 80 columns, and cut names that programs look for.
    if not screen.is_terminal:
        options = screen.options.update(width=_UNLIMITED)
        screen.width = max(screen.width, screen.measure(table, options=options).maximum)
    screen.print(table)
