"""Request for a page: documents, and what its sections are made with.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from populations.views.chart_parts import PALETTE, Reader, coloured
from populations.views.parts import Document, Row, Section
from populations.views.views import VIEWS

from ...league.narrowing import limited
from ...show.html import Block, Hypertext, guarded, page_name
from ...show.labels import reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Page that is asked for.

    Attributes:
        documents: Documents of the views that it needs, by view.
        medium: Medium with the page's address, its part and its filters.
        others: Names of other runs, by the addresses of the differences to them.
        colours: Colours of policies, the same on all pages.
    """

    documents: Mapping[str, Document]
    medium: Hypertext
    others: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)

    @property
    def reader(self) -> Reader:
        """Reader of charts."""
        links = self.medium.links
        return reader(self.medium.populations, links.player, colours=self.colours)

    def rows(self, view: str, key: str) -> list[Row]:
        """Return a list of rows of a view's document."""
        return cast("list[Row]", self.documents[view][key])

    def populations(self, view: str = "standings") -> dict[str, list[Row]]:
        """Return rows of a view's document by population."""
        return cast("dict[str, list[Row]]", self.documents[view]["populations"])

    def standings(self) -> dict[str, list[Row]]:
        """Return the standings, a policy and its ghost with the same weights as one."""
        return {
            name: [line for line in lines if line["same_as"] is None]
            for name, lines in self.populations().items()
        }

    def best(self, population: str) -> list[str]:
        """Return the policies of a population, best rated first."""
        lines = self.populations().get(population, [])
        return [str(line["player"]) for line in lines if line["kind"] == "policy"]

    def sections(self, view: str, document: Document | None = None) -> list[Section]:
        """Return the sections of a view, of all of its rows.

        Args:
            view: The view.
            document: Document in the place of the run's own. None: the run's own.
        """
        shape = VIEWS[view]
        shown = shape.on_screen(self.documents[view] if document is None else document)
        if shape.limits:
            shown = limited(shown, shape, None).document
        return list(shape.sections(shown, self.medium.room))

    def part(
        self, heading: str, make: Callable[[], Iterable[Section]], *, csv: str = ""
    ) -> list[Block]:
        """Return the blocks of a part; of one that fails, a block that says so.

        Args:
            heading: Heading of a part that fails.
            make: Function that makes its sections.
            csv: View that has all rows of its tables; empty: none.
        """
        return guarded(heading, lambda: self.medium.blocks(make(), csv=csv))


def colours_of(standings: Document) -> dict[str, str]:
    """Return the colour of each policy: of a few all have one, else the best of each population."""
    populations = cast("Mapping[str, Sequence[Row]]", standings["populations"])
    best = [
        [str(line["player"]) for line in lines if line["kind"] == "policy"]
        for lines in populations.values()
    ]
    every = [*chain(*best)]
    groups = [every] if len(every) <= len(PALETTE) else best
    return {**dict.fromkeys(every, "grey"), **dict(chain(*(coloured(o).items() for o in groups)))}


def names_of(standings: Document) -> dict[str, str]:
    """Return the names of the pages of all players that have one, by player."""
    populations = cast("Mapping[str, Sequence[Row]]", standings["populations"])
    found = {
        str(line["player"]): page_name(str(line["player"]), cast("str | None", line["weights"]))
        for lines in populations.values()
        for line in lines
        if line["kind"] != "bot"
    }
    return {player: name for player, name in found.items() if name}
