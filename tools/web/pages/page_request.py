"""Request for a page: its documents, and the reader and colours that its sections use.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from populations.views.charts.parts import PALETTE, Reader, coloured
from populations.views.parts import Document, Row, Section
from populations.views.views import VIEWS

from ...league.narrowing import limited
from ...show.html import Block, Hypertext, guarded, page_name, slug
from ...show.values import name as name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest(Hypertext):
    """Page that is asked for.

    Attributes:
        documents: Documents of the views that it needs, by view.
        others: Names of other runs, by the addresses of the differences to them.
        colours: Colours of policies, the same on all pages.
    """

    documents: Mapping[str, Document]
    others: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)

    @property
    def reader(self) -> Reader:
        """Reader of charts."""
        return Reader(self.populations, self.links.player, self._versus, colours=self.colours)

    def _versus(self, player: str, opponent: str) -> str:
        """Return the address of the games of two, in files of a result on the page of a player."""
        if games := self.links.pair(player, opponent):
            return games
        page = self.links.player(player)
        return f"{page}#{slug(f'vs {name_of(opponent, self.room)}')}" if page else ""

    def charts(self, view: str, **documents: Document) -> list[Section]:
        """Return the sections with charts of a view; documents take the places of the run's own."""
        figure = VIEWS[view].figure
        assert figure is not None, f"{view} has charts"
        own = {name: self.documents[name] for name in figure.documents if name not in documents}
        sections = figure.draw({**own, **documents}, self.reader)
        # A section without a title only explains why there are no charts, which the table says,
        # too.
        return [one for one in sections if one.title is not None]

    def rows(self, view: str, key: str) -> list[Row]:
        """Return a list of rows of a view's document."""
        found: list[Row] = self.documents[view][key]
        return found

    @property
    def standings(self) -> dict[str, list[Row]]:
        """Lines of the standings by population."""
        found: dict[str, list[Row]] = self.documents["standings"]["populations"]
        return found

    def sections(self, view: str, document: Document | None = None) -> list[Section]:
        """Return the sections of a view, of all of its rows.

        Args:
            view: The view.
            document: Document in the place of the run's own. None: the run's own.
        """
        shape = VIEWS[view]
        shown = shape.on_screen(self.documents[view] if document is None else document)
        if shape.limits:
            shown, _ = limited(shown, shape, None)
        return list(shape.sections(shown, self.room))

    def part(
        self, heading: str, make: Callable[[], Iterable[Section]], *, csv: str = ""
    ) -> list[Block]:
        """Return the blocks of a part; of one that fails, a block that says so.

        Args:
            heading: Heading of a part that fails.
            make: Function that makes its sections.
            csv: View that has all rows of its tables; empty: none.
        """
        return guarded(heading, lambda: self.blocks(make(), csv=csv))


def colours_of(standings: Document) -> dict[str, str]:
    """Return the colour of each policy: of a few all have one, else the best of each population."""
    best = [
        [str(line["player"]) for line in lines if line["kind"] == "policy"]
        for lines in standings["populations"].values()
    ]
    every = [*chain(*best)]
    groups = [every] if len(every) <= len(PALETTE) else best
    return {**dict.fromkeys(every, "grey"), **dict(chain(*(coloured(o).items() for o in groups)))}


def names_of(standings: Document) -> dict[str, str]:
    """Return the names of the pages of all players that have one, by player."""
    populations = standings["populations"]
    found = {
        str(line["player"]): page_name(str(line["player"]), line["weights"])
        for lines in populations.values()
        for line in lines
        if line["kind"] != "bot"
    }
    return {player: name for player, name in found.items() if name}
