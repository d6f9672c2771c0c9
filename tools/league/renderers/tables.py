"""Tables that fit the screen: what is constant in one line above, what has no room named below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .look import MAX_CELL, Look, Row, text_of

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

GAP = 2
"""Blanks between columns."""

MIN_TEXT = 24
"""Fewest characters of a column that takes the room that is left."""

MIN_LABEL = 6
"""Fewest characters of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Column of a table.

    Attributes:
        key: Key of a row.
        title: Title; empty: the key.
        show: Function that writes a value.
        drop: Order in which columns are left out where there is no room; 0: never.
        is_label: Whether it says what the row is about, so that it stays though it is constant.
        is_text: Whether it takes the room that is left, in several lines if need be.
        most: Most characters of a cell.
        is_right: Whether it ends at the right, as numbers do.
    """

    key: str
    title: str = ""
    show: Callable[[object], str] = text_of
    drop: int = 0
    is_label: bool = False
    is_text: bool = False
    most: int = MAX_CELL
    is_right: bool = True

    @property
    def name(self) -> str:
        """Title of the column."""
        return self.title or self.key.replace("_", " ")


def label(key: str, look: Look, *, title: str = "", drop: int = 0) -> Column:
    """Return a column of players' names."""
    return Column(key=key, title=title, show=look.name, is_label=True, is_right=False, drop=drop)


def table(
    rows: Sequence[Row], columns: Sequence[Column], look: Look, *, title: str = ""
) -> Iterator[RenderableType]:
    """Yield a table no wider than the screen, with lines about what is constant or left out.

    Args:
        rows: Rows, in order.
        columns: Columns, in order; ones that no row has are left out.
        look: Room for the table.
        title: Line above it.
    """
    from rich.text import Text

    if title:
        yield Text(title, style="bold")
    cells = {
        column: [_cell(column, row, look) for row in rows]
        for column in columns
        if any(row.get(column.key) is not None for row in rows)
    }
    constant = [column for column in cells if _is_constant(column, cells[column])]
    if constant and not look.is_wide:
        said = ", ".join(f"{column.name} {cells.pop(column)[0]}" for column in constant)
        yield Text(f"in all rows: {said}")
    hidden = [] if look.is_wide else _without_room(cells, look.width)
    for column in hidden:
        del cells[column]
    if not look.is_wide:
        _shorten_labels(cells, look)
    if cells:
        yield _drawn(cells, look)
    if hidden:
        # Columns beside each other may have one title.
        names = ", ".join(dict.fromkeys(column.name for column in hidden))
        yield Text(f"columns without room: {names} (--wide)")


def _cell(column: Column, row: Row, look: Look) -> str:
    text = column.show(row.get(column.key))
    return text if column.is_text else look.cut(text, column.most)


def _is_constant(column: Column, cells: Sequence[str]) -> bool:
    return not column.is_label and not column.is_text and len(cells) > 1 and len(set(cells)) == 1


def _width(column: Column, cells: Sequence[str]) -> int:
    from rich.cells import cell_len

    if column.is_text:
        return min(MIN_TEXT, max(map(cell_len, cells), default=0))
    return max(cell_len(column.name), *map(cell_len, cells))


def _without_room(cells: dict[Column, list[str]], width: int) -> list[Column]:
    """Return the columns to leave out, those with the highest order first."""
    widths = {column: _width(column, texts) for column, texts in cells.items()}
    hidden: list[Column] = []
    for column in sorted((one for one in widths if one.drop), key=lambda one: -one.drop):
        if sum(widths.values()) + GAP * (len(widths) - 1) <= width:
            break
        del widths[column]
        hidden.append(column)
    # In the order of the table.
    return [column for column in cells if column in hidden]


def _shorten_labels(cells: dict[Column, list[str]], look: Look) -> None:
    """Shorten names until the table fits, the longest first: numbers must not be cut."""
    widths = {column: _width(column, texts) for column, texts in cells.items()}
    names = [column for column in cells if column.is_label and not column.is_right]
    while sum(widths.values()) + GAP * (len(widths) - 1) > look.width:
        longest = max(names, key=widths.__getitem__, default=None)
        if longest is None or widths[longest] <= MIN_LABEL:
            return
        widths[longest] -= 1
        cells[longest] = [look.cut(text, widths[longest]) for text in cells[longest]]


def _drawn(cells: dict[Column, list[str]], look: Look) -> RenderableType:
    from rich.table import Table

    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    # What the other columns leave, where a text must not be as wide as it likes.
    used = sum(_width(one, texts) + GAP for one, texts in cells.items() if not one.is_text)
    for column in cells:
        justify: JustifyMethod = "right" if column.is_right and not column.is_text else "left"
        drawn.add_column(
            column.name,
            justify=justify,
            no_wrap=not column.is_text or look.is_wide,
            overflow="fold" if column.is_text else "ellipsis",
            max_width=max(look.width - used, MIN_TEXT)
            if column.is_text and not look.is_wide
            else None,
        )
    for texts in zip(*cells.values(), strict=True):
        drawn.add_row(*texts)
    return drawn
