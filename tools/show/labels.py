"""Labels of charts: texts of users and environments, of one line and short.

Tests: `tests/tools/show/test_chart_files.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from populations.views.chart_parts import Reader
from populations.views.texts import one_line

MAX_NAME = 24
"""Characters of a label."""


def labelled(text: str) -> str:
    """Return a text of users or environments as a label."""
    # Twice: what controls or turns round text is written longer than it was.
    return one_line(one_line(text[: 4 * MAX_NAME]), max_chars=MAX_NAME)


def reader(
    populations: Sequence[str],
    href: Callable[[str], str] = lambda player: "",
    *,
    width: int | None = None,
    colours: Mapping[str, str] | None = None,
) -> Reader:
    """Return the page or file that charts are for.

    Args:
        populations: Names of the run's populations.
        href: Address of a player's page; empty: it has none.
        width: Pixels of a plot; None: those of the page.
        colours: Colours of players. None: each chart has its own.
    """
    return Reader(
        text=labelled, populations=populations, href=href, width=width, colours=colours or {}
    )
