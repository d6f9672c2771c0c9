"""Definition of a view: functions for its document, rows and sections, and its options."""

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
    """Return sections with one table: the rows of a document, under a title."""
    return lambda document, room: iter(
        [Section(title=Line(title, document), body=Table(columns, rows(document)))]
    )


class Operand(NamedTuple):
    """Positional argument of the command line that a view needs, such as a policy.

    Attributes:
        option: Argument of the document's function to which the operand is passed.
        noun: Word for it in messages.
        example: Example as a user writes it.
    """

    option: str
    noun: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Definition of one view.

    Attributes:
        document: Function that makes the view's document of a run at one moment, of all populations
            or of one, and with the options of the view.
        sections: Function that yields the sections that terminals and pages show.
        flat: Function that makes the flat rows of the view's document. If None, the rows are the
            entries that ``--limit`` counts.
        limits: Key of the document whose entries ``--limit`` counts: a list, or lists or entries by
            name. If empty, ``--limit`` does not shorten the view.
        order: Function that orders these entries for sections and before a limit.
        on_screen: Function that removes from a document what terminals do not repeat.
        keeps_last: Whether a limit selects the last entries, not the first.
        lines: Approximate number of lines that an entry takes on a screen.
        fits: Function that returns whether the view of a document needs no limit.
        warns: Whether warnings about ratings are shown below the table.
        operand: Positional argument that the view needs; None if it takes none.
        figure: Charts of the view; None if it has none.
        lists: Keys of the document's lists that are drawn as charts and are not rows.
        has_page: Whether the view has a page of its own, with its charts and then its sections.
        is_whole: Whether web pages make its document of the whole run. It is false for a view that
            needs an operand, and for tallies, as those of a big league would take a gigabyte.
        is_fitted: Whether it needs a fit of all checkpoints, which takes long.
        takes: Options of the command line that belong to the view, each with the argument of the
            document's function to which it is passed; empty if it is passed to none.
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
        """Return the flat rows of the view's document, for CSV and Python."""
        return list(document[self.limits]) if self.flat is None else self.flat(document)

    def arguments(
        self, given: Mapping[str, object], operand: str | None = None
    ) -> dict[str, object]:
        """Return the arguments of the document's function among ``given``, and the operand."""
        own = {*self.takes.values(), *(self.operand or ())[:1]}
        if self.operand is not None and operand is not None:
            given = {**given, self.operand.option: operand}
        return {name: value for name, value in given.items() if name in own}
