"""Site of one or several runs: the page at an address, whether it is sent or written to a file.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from arena.errors import ArenaError

from .content import Block, Cell, Content, Links, Row, Table, cell, failed, shown
from .pages.asked import Asked, Document, names_of, standing_lines
from .pages.diff import DIFFERENCES, diff
from .pages.overview import OTHERS
from .pages.pages import PAGES
from .pages.player import VIEWS_OF_PLAYER, find_player, player_document, player_page
from .render import Frame, render
from .runs import NotYet, Run

POLL_S = 5.0
"""Seconds between two looks of a visible page at a run that goes on."""

UNMADE = "Being computed"

IDLE_POLL_S = 30.0
"""Seconds between two looks at a run that has stopped or crashed: it may be resumed."""

UNMADE_POLL_S = 1.0
"""Seconds between two looks at a page that is being computed."""

MAX_QUERY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of a page: its name, its part, and the filters."""

    name: str
    number: int = 1
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """Pages of runs.

    Attributes:
        runs: Runs by their names in addresses.
        is_static: Whether pages become files.
        linked: Players that have a page, of those that could have; a static export leaves most
            ghosts of a big league out.
    """

    runs: Mapping[str, Run]
    is_static: bool = False
    linked: Callable[[dict[str, str]], dict[str, str]] = dict

    def views(self, run: Run, name: str) -> tuple[str, ...]:
        """Return the documents that a page needs, beside the frame's ``status``."""
        if name in run.diffs:
            return (name,)
        page = PAGES.get(name)
        return page.views if page else VIEWS_OF_PLAYER

    def tag(self, run: Run, name: str) -> str:
        """Return a text that changes whenever a page does."""
        return f"{run.etag(['status'])}-{run.etag(self.views(run, name))}"

    def index(self) -> str:
        """Return the first page: of the only run, or the list of runs."""
        if len(self.runs) == 1:
            (slug,) = self.runs
            html = self.page(slug, Address(name="index"), root="", base=f"{slug}/")
            assert html is not None, "every run has an overview"
            return html
        rows = [self._run_row(run) for run in self.runs.values()]
        columns = ["run", "state", "agent steps", "matches", "champion", "rating"]
        table = Table(columns=columns, rows=rows, total=len(rows))
        content = Content(title="Runs", blocks=[Block(heading="All runs", table=table)])
        is_whole = not any(row.cells[1].text == UNMADE for row in rows)
        poll_s = 0.0 if self.is_static else IDLE_POLL_S if is_whole else UNMADE_POLL_S
        frame = Frame(root="", page="", navigation={}, poll_s=poll_s, is_static=self.is_static)
        return render(content, frame)

    def unmade_index(self) -> str:
        """Return what is sent instead of the first page while its documents are being made."""
        if len(self.runs) == 1:
            (slug,) = self.runs
            return self.unmade(slug, "index", root="", base=f"{slug}/")
        return self.index()

    def _run_row(self, run: Run) -> Row:
        try:
            status = run.documents(["status"])["status"]
        except ArenaError as error:
            # One run that cannot be read leaves the others.
            state = UNMADE if isinstance(error, NotYet) else "cannot be read"
            first = Cell(text=run.name, href=f"{run.slug}/index.html")
            return Row(cells=[first, cell(state), *(cell(None) for _ in range(4))])
        champions = cast("Mapping[str, Mapping[str, object]]", status["champion"]).values()
        best = next(iter(champions), {})
        return Row(
            cells=[
                Cell(text=run.name, href=f"{run.slug}/index.html"),
                *(cell(status[key]) for key in ("state", "agent_steps", "matches")),
                cell(best.get("player")),
                cell(best.get("rating")),
            ]
        )

    def page(self, slug: str, address: Address, *, root: str = "../", base: str = "") -> str | None:
        """Return a run's page; None: there is none of this name.

        Args:
            slug: Name of the run.
            address: Page of the run.
            root: Way from the page to the folder of all runs.
            base: Way from the page to the run's folder.
        """
        run = self.runs[slug]
        views = self.views(run, address.name)
        documents = run.documents(views)
        content = self._content(run, address, documents, base=base)
        if content is None:
            return None
        try:
            # Made by itself, which is quick: whether a run goes on does not wait for its ratings.
            status = run.documents(["status"])["status"]
        except ArenaError:
            # The frame says less; the overview says why.
            status = None
        frame = self._frame(run, status, address.name, root=root, base=base)
        # The run has ended, and a document that is not due yet is of before.
        if not frame.poll_s and not self.is_static and not run.is_current(views):
            frame = replace(frame, poll_s=POLL_S)
        return render(content, frame)

    def _content(
        self, run: Run, address: Address, documents: Mapping[str, Document], *, base: str
    ) -> Content | None:
        """Return what a page has below its frame; None: there is no such page."""
        others = {f"{base}{name}.html": other.slug for name, other in run.diffs.items()}
        if (other := run.diffs.get(address.name)) is not None:
            ways = (base, f"{base}../{other.slug}/")
            return _guarded(
                DIFFERENCES,
                lambda: diff(documents[address.name], page=address.name, ways=ways, others=others),
            )
        try:
            standings = documents["standings"]
        except ArenaError as error:
            # The overview has parts without them; all other pages are about players.
            if address.name != "index":
                return Content(title=shown(address.name), blocks=[failed("Standings", error)])
            standings = {"populations": {}}
        names = names_of(standings)
        asked = Asked(
            documents=documents,
            links=Links(base=base, is_static=self.is_static, names=self.linked(names)),
            page=address.name,
            number=address.number,
            query={key: value[:MAX_QUERY] for key, value in address.query.items()},
            populations=tuple(standing_lines(standings)),
            others=others,
        )
        page = PAGES.get(address.name)
        if page is not None:
            return _guarded(page.title, partial(page.make, asked))
        player = find_player(address.name, names)
        if player is None:
            return None
        return _guarded(shown(player), partial(player_page, asked, player))

    def unmade(self, slug: str, name: str, *, root: str = "../", base: str = "") -> str:
        """Return what is sent instead of a page while its documents are being made.

        Args:
            slug: Name of the run.
            name: Name of the page.
            root: Way from the page to the folder of all runs.
            base: Way from the page to the run's folder.
        """
        page = PAGES.get(name)
        note = "The ratings of a big league take a minute. The page comes by itself."
        content = Content(
            title=shown(name) if page is None else page.title,
            blocks=[Block(heading=UNMADE, note=note)],
        )
        frame = self._frame(self.runs[slug], None, name, root=root, base=base)
        return render(content, replace(frame, poll_s=UNMADE_POLL_S))

    def _frame(
        self, run: Run, status: Document | None, name: str, *, root: str, base: str
    ) -> Frame:
        page = PAGES.get(name)
        navigation = {one.title: f"{base}{name}.html" for name, one in PAGES.items()}
        if run.diffs:
            # To the only other run, or to the list of them.
            (first, *rest) = run.diffs
            navigation[DIFFERENCES] = (
                f"{base}index.html#{Block(heading=OTHERS).anchor}"
                if rest
                else f"{base}{first}.html"
            )
        state = "" if status is None else str(status["state"])
        poll_s = POLL_S if state == "running" else IDLE_POLL_S
        if self.is_static or state in ("finished", "failed"):
            poll_s = 0.0
        return Frame(
            root=root,
            run=run.name,
            state=state,
            page=DIFFERENCES if name in run.diffs else "" if page is None else page.title,
            navigation=navigation,
            poll_s=poll_s,
            is_static=self.is_static,
            # A page that is not made yet may turn out not to be there.
            data={} if self.is_static or status is None else self._data(name, base=base),
        )

    def _data(self, name: str, *, base: str) -> dict[str, str]:
        """Return the addresses of the documents that a page is made from."""
        page = PAGES.get(name)
        # A page of one player or of two runs has a document of its own.
        names = (name,) if page is None else page.views
        return {shown(one): f"{base}{one}.json" for one in names}

    def player_document(self, slug: str, name: str) -> Document | None:
        """Return what a player's page shows; None: there is no page of this name."""
        documents = self.runs[slug].documents(VIEWS_OF_PLAYER)
        player = find_player(name, names_of(documents["standings"]))
        return None if player is None else player_document(documents, player)


def _guarded(title: str, make: Callable[[], Content]) -> Content:
    """Return a page's content; of one that fails, what says so."""
    try:
        return make()
    # The boundary of a page, as `part` is that of its parts.
    except Exception as error:
        return Content(title=title, blocks=[failed(title, error)])
