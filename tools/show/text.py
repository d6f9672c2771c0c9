"""Sections of a view as text: tables that fit the screen, lines, pairs and trees.

Of a table what is constant stands in one line above, what has no room is named below.

Tests: `tests/tools/league/test_screens.py`.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from arena.drawings.picture import Picture
from populations.views.parts import Beside, Column, Pairs, Room, Section, Table, Tree
from populations.views.texts import plain

from ..terminal.output import console
from .values import FLOWING, LEFT, cell_text, line_text, text, value_of

if TYPE_CHECKING:
    import rich.table
    import rich.tree
    from rich.console import JustifyMethod, OverflowMethod, RenderableType

GAP = 2
"""Blanks between columns."""

MIN_TEXT = 24
"""Fewest characters of a column that takes the room that is left."""

MIN_LABEL = 6
"""Fewest characters of a name."""

MAX_NAME = 24
"""Most characters of the name of a pair."""

MAX_KEY = 34
"""Most characters of a line of a key beside two values."""

MAX_VALUE = 80
"""Most characters of a value beside another one, in several lines."""

UNLIMITED = 10_000
"""Characters of a line that has room for every table."""


def drawn(sections: Iterable[Section], room: Room) -> Iterator[RenderableType]:
    """Yield what a screen shows of sections."""
    from rich.text import Text

    for section in sections:
        if section.title is not None:
            yield Text(line_text(section.title, room), style="bold")
        yield from (Text(line_text(line, room)) for line in section.above)
        if isinstance(section.chart, Picture):
            # A chart must not be wrapped, because wrapped lines are unreadable.
            yield Text(section.chart.text, no_wrap=True, overflow="ellipsis")
        match section.body:
            case Table():
                yield from _table(section.body, room)
            case Pairs():
                yield _pairs(section.body, room)
            case Beside():
                yield from _beside(section.body, room)
            case Tree():
                yield _tree(section.body, room)
        yield from (Text(line_text(line, room)) for line in section.below)
        if section.command:
            # A command is not wrapped, so that it can be copied.
            yield Text(_command(section.command, room), no_wrap=True, overflow="ignore")


def _table(table: Table, room: Room) -> Iterator[RenderableType]:
    """Yield a table no wider than the screen, with lines about what is constant or left out."""
    from rich.text import Text

    cells = {
        column: [cell_text(column, row, room) for row in table.rows]
        for column in table.columns
        if any(value_of(column.key, column.kind, row) is not None for row in table.rows)
    }
    constant = [column for column in cells if _is_constant(column, cells[column])]
    if constant and not room.is_wide:
        said = ", ".join(f"{column.name} {cells.pop(column)[0]}" for column in constant)
        yield Text(f"in all rows: {said}")
    hidden = [] if room.is_wide else _without_room(cells, room.width)
    for column in hidden:
        del cells[column]
    if not room.is_wide:
        _shorten_labels(cells, room)
    if cells:
        yield _grid(cells, room)
    if hidden:
        # Neighbouring columns may have the same title, which is listed once.
        names = ", ".join(dict.fromkeys(column.name for column in hidden))
        yield Text(f"columns without room: {names} ({room.more})")


def _is_constant(column: Column, cells: Sequence[str]) -> bool:
    is_free = not column.is_label and column.kind not in FLOWING
    return is_free and len(cells) > 1 and len(set(cells)) == 1


def _width(column: Column, cells: Sequence[str]) -> int:
    from rich.cells import cell_len

    if column.kind in FLOWING:
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
    # The result keeps the column order of the table.
    return [column for column in cells if column in hidden]


def _shorten_labels(cells: dict[Column, list[str]], room: Room) -> None:
    """Shorten names until the table fits, the longest first: numbers must not be cut."""
    widths = {column: _width(column, texts) for column, texts in cells.items()}
    names = [column for column in cells if column.is_label and column.kind in LEFT - FLOWING]
    while sum(widths.values()) + GAP * (len(widths) - 1) > room.width:
        longest = max(names, key=widths.__getitem__, default=None)
        if longest is None or widths[longest] <= MIN_LABEL:
            return
        widths[longest] -= 1
        cells[longest] = [room.cut(one, widths[longest]) for one in cells[longest]]


def _grid(cells: dict[Column, list[str]], room: Room) -> RenderableType:
    import rich.table

    grid = rich.table.Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    # A flowing text gets the width that the other columns leave, so those are measured first.
    used = sum(_width(one, texts) + GAP for one, texts in cells.items() if one.kind not in FLOWING)
    for column in cells:
        justify: JustifyMethod = "left" if column.kind in LEFT else "right"
        is_text = column.kind in FLOWING
        grid.add_column(
            column.name,
            justify=justify,
            no_wrap=not is_text or room.is_wide,
            overflow="fold" if is_text else "ellipsis",
            max_width=max(room.width - used, MIN_TEXT) if is_text and not room.is_wide else None,
        )
    for texts in zip(*cells.values(), strict=True):
        grid.add_row(*texts)
    return grid


def framed(
    table: Table,
    *,
    overflow: OverflowMethod = "fold",
    **style: Any,  # noqa: ANN401
) -> rich.table.Table:
    """Return a table with all of its columns and rows.

    Args:
        table: The table.
        overflow: Fate of texts that have no room, which may be there to be copied.
        **style: Options of rich's Table.
    """
    import rich.table

    room = Room(width=UNLIMITED, is_wide=True)
    grid = rich.table.Table(**{"title_justify": "left", **style})
    for column in table.columns:
        grid.add_column(
            column.name,
            justify="left" if column.kind in LEFT else "right",
            overflow=overflow if column.kind in LEFT else "ellipsis",
        )
    for row in table.rows:
        grid.add_row(*(cell_text(column, row, room) for column in table.columns))
    return grid


def print_framed(table: Table, **style: Any) -> None:  # noqa: ANN401
    """Print a table as wide as the terminal; in a file or pipe as wide as the table."""
    screen, grid = console(), framed(table, **style)
    # Otherwise rich folds to 80 columns and cuts names that programs look for.
    if not screen.is_terminal:
        options = screen.options.update(width=UNLIMITED)
        screen.width = max(screen.width, screen.measure(grid, options=options).maximum)
    screen.print(grid)


def _pairs(pairs: Pairs, room: Room) -> RenderableType:
    """Return names with their values, as a table without a head."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    grid.add_column(no_wrap=True, max_width=MAX_NAME, overflow="ellipsis")
    grid.add_column(overflow="fold")
    for name, line in pairs.rows:
        grid.add_row(Text(plain(name)), Text(line_text(line, room)))
    return grid


def _tree(tree: Tree, room: Room) -> rich.tree.Tree:
    """Return a tree; in ASCII, rich takes the guides from the console's encoding by itself."""
    import rich.tree
    from rich.text import Text

    root = rich.tree.Tree(Text(line_text(tree.line, room), style="bold"))
    waiting = [(root, branch) for branch in reversed(tree.branches)]
    # An explicit stack avoids deep recursion, because a line of copies may be long.
    while waiting:
        above, branch = waiting.pop()
        grown = above.add(Text(line_text(branch.line, room)))
        waiting += [(grown, one) for one in reversed(branch.branches)]
    return root


def _beside(beside: Beside, room: Room) -> Iterator[RenderableType]:
    """Yield a table of a key and a text of each run, in several lines where need be."""
    keys = [_broken(plain(key), room) for key, *_ in beside.rows]
    used = max((len(line) for key in keys for line in key.splitlines()), default=0)
    # The values share the width that the keys and two gaps leave.
    width = (room.width - used) // 2 - GAP
    rows = [
        (key, *(_wrapped(one, width, room) for one in side_texts(kind, values, room)))
        for key, (_, kind, *values) in zip(keys, beside.rows, strict=True)
    ]
    if rows:
        labels = enumerate(map(plain, (" ", *beside.labels)))
        columns = [Column(str(place), "sentence", label) for place, label in labels]
        cells = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
        yield _grid(cells, room)


def side_texts(kind: str, values: Sequence[object], room: Room) -> list[str]:
    """Return the texts of a value of both runs, in which they differ if they do."""
    texts = [text(value, kind, room) for value in values]  # type: ignore[arg-type]
    short = [room.cut(one, MAX_VALUE) for one in texts]
    if short[0] != short[1] or texts[0] == texts[1]:
        return short
    # The common beginning is skipped, because the difference is further on.
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    begin = max(equal - MAX_VALUE // 2, 0)
    return [room.cut(f"... {one[begin:]}", MAX_VALUE) for one in texts]


def _broken(key: str, room: Room) -> str:
    """Return a dotted key in lines that end after a dot where they can."""
    if room.is_wide:
        return key
    lines = [""]
    for part in re.findall(r"[^.]*\.?", key):
        if lines[-1].strip() and len(lines[-1]) + len(part) > MAX_KEY:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(_wrapped(line, MAX_KEY, room) for line in lines)


def _wrapped(written: str, width: int, room: Room) -> str:
    """Return a text in lines of at most so many characters, unless everything is shown."""
    if room.is_wide:
        return written
    return "\n".join(
        textwrap.wrap(written, max(width, 1), break_on_hyphens=False, drop_whitespace=False)
    )


def _command(command: str, room: Room) -> str:
    """Return a command in one line, or one for each argument as a shell reads it."""
    line = f"    {plain(command)}"
    if room.is_wide or len(line) <= room.width:
        return line
    words = [plain(shlex.quote(word)) for word in shlex.split(command)]
    return "    " + " \\\n        ".join((" ".join(words[:2]), *words[2:]))
