"""Shape of a view: its document, its rows, its sections, and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from populations.views.charts.figures import Figure
from populations.views.parts import Column, Document, Line, Room, Row, Section, Table

Sections = Callable[[Document, Room], Iterator[Section]]
Order = Callable[[Sequence[Row], Document], list[Row]]


def listed(
    title: str, columns: Sequence[Column], rows: Callable[[Document], Sequence[Row]]
) -> Sections:
    """Return a function that yields one table of a document's rows under a title about it."""
    return lambda document, room: iter(
        [Section(title=Line(title, document), body=Table(columns, rows(document)))]
    )


class Operand(NamedTuple):
    """Last argument of the command line, about which a view is.

    Attributes:
        option: Argument of the document's function that it is.
        noun: Word for it.
        example: One as a user writes it.
    """

    option: str
    noun: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Shape of one view.

    Attributes:
        document: Function that makes its document of a run at one moment, of all populations or of
            one, and with the options of the view.
        sections: Function that yields what people see.
        flat: Function that makes the flat rows of the view's document. None: they are the entries
            that ``--limit`` counts.
        limits: Key of the document whose entries ``--limit`` counts: a list, or lists or entries by
            name. Empty: the view is never cut.
        order: Order of these entries for people and under a limit.
        on_screen: Function that leaves out of the document what screens do not repeat.
        keeps_last: Whether a limit keeps the last entries, not the first.
        lines: Lines of a screen that an entry takes, about.
        fits: Function that tells whether a form of the view needs no limit.
        warns: Warnings about ratings below the table.
        operand: Last argument that the view needs. None: it takes none.
        figure: Its charts. None: it has none.
        lists: Lists of its document that are drawn, and are not its rows.
        has_page: Whether it has a page of its own: its charts, then its sections.
        is_whole: Whether pages have its document of the whole run. That of every tally of a big
            league would take a gigabyte.
        is_fitted: Whether it needs a fit of all checkpoints, which takes long.
        takes: Options of the command line that belong to the view, each with the argument of the
            document's function that it is; empty: it is none.
    """

    document: Callable[..., Document]
    sections: Sections
    flat: Callable[[Document], list[Row]] | None = None
    limits: str = ""
    order: Order = lambda rows, document: list(rows)
    on_screen: Callable[[Document], Document] = lambda document: document
    keeps_last: bool = False
    lines: int = 1
    fits: Callable[[Document, Room], bool] = lambda document, room: False
    warns: bool = False
    operand: Operand | None = None
    figure: Figure | None = None
    lists: tuple[str, ...] = ()
    has_page: bool = False
    is_whole: bool = True
    is_fitted: bool = False
    takes: Mapping[str, str] = field(default_factory=dict)

    def rows(self, document: Document) -> list[Row]:
        """Return the flat rows of the view's document, as CSV and Python have them."""
        return list(document[self.limits]) if self.flat is None else self.flat(document)

    def arguments(
        self, given: Mapping[str, object], operand: str | None = None
    ) -> dict[str, object]:
        """Return those that the document's function takes, the operand among them."""
        own = {*self.takes.values(), *(self.operand or ())[:1]}
        if self.operand is not None and operand is not None:
            given = {**given, self.operand.option: operand}
        return {name: value for name, value in given.items() if name in own}
