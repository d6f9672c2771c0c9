"""Site of one or several runs: the page at an address, whether it is sent or written to a file.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arena.errors import ArenaError
from populations.views.log import game
from populations.views.parts import SIDES, Column, Document, Line, Row, Section, Table

from ..show.html import Block, Cell, Hypertext, Links, failed, guarded, page_name, short, slug
from .pages.league import OTHERS
from .pages.log import FIELDS, differences, filters, parts_of_metrics
from .pages.page_request import PageRequest, colours_of, names_of
from .pages.pages import PAGES
from .pages.player import VIEWS_OF_PLAYER, find_player, player_document, player_page
from .render import Content, Frame, render
from .runs import NotYet, Run

DIFFERENCES = "Differences"

RUNS = (
    Column("run", "word"),
    Column("state", "word"),
    Column("agent_steps", "count", "agent steps"),
    Column("matches", "count"),
    Column("champion", "word"),
    Column("rating", "elo"),
)

POLL_S = 5.0
"""Seconds between two looks of a visible page at a run that goes on."""

UNMADE = "Being computed"

IDLE_POLL_S = 30.0
"""Seconds between two looks at a run that has stopped or crashed: it may be resumed."""

UNMADE_POLL_S = 1.0
"""Seconds between two looks at a page that is being computed."""

MAX_QUERY = 200


@dataclass(frozen=True, slots=True)
class Site:
    """Pages of runs.

    Attributes:
        runs: Runs by their names in addresses.
        is_static: Whether pages become files.
        linked: Players that have a page, of those that could have; a static export leaves most
            ghosts of a big league out.
        games: Games that have a page in an export, by run.
    """

    runs: Mapping[str, Run]
    is_static: bool = False
    linked: Callable[[dict[str, str]], dict[str, str]] = dict
    games: Mapping[str, Collection[str]] = field(default_factory=dict)

    def views(self, run: Run, name: str) -> tuple[str, ...]:
        """Return the documents that a page needs, beside the frame's ``status``."""
        if run.view_of(name) in ("diff", "game"):
            return (name,)
        page = PAGES.get(name)
        return page.views if page else VIEWS_OF_PLAYER

    def tag(self, run: Run, name: str) -> str:
        """Return a text that changes whenever a page does."""
        return f"{run.etag(['status'])}-{run.etag(self.views(run, name))}"

    def index(self) -> str:
        """Return the first page: of the only run, or the list of runs."""
        if len(self.runs) == 1:
            html = self.page(*self._first())
            assert html is not None, "every run has an overview"
            return html
        rows = [self._run_row(run) for run in self.runs.values()]
        table = Section(title=Line("All runs"), body=Table(RUNS, rows))
        (block,) = Hypertext().blocks([table])
        names = [Cell(short(run.name), href=f"{run.slug}/index.html") for run in self.runs.values()]
        linked = [
            replace(row, cells=[[name], *row.cells[1:]])
            for row, name in zip(block.rows, names, strict=True)
        ]
        content = Content(title="Runs", blocks=[replace(block, rows=linked)])
        is_whole = not any(row["state"] == UNMADE for row in rows)
        poll_s = 0.0 if self.is_static else IDLE_POLL_S if is_whole else UNMADE_POLL_S
        frame = Frame(root="", page="", navigation={}, poll_s=poll_s, is_static=self.is_static)
        return render(content, frame)

    def unmade_index(self) -> str:
        """Return what is sent instead of the first page while its documents are being made."""
        return self.unmade(*self._first()) if len(self.runs) == 1 else self.index()

    def _first(self) -> tuple[str, Hypertext]:
        """Return the only run, and the address of its overview in the folder of all runs."""
        (slug,) = self.runs
        return slug, Hypertext(page="index", links=Links(root="", base=f"{slug}/"))

    def _run_row(self, run: Run) -> Row:
        try:
            status = run.documents(["status"])["status"]
        except ArenaError as error:
            # An unreadable run is one row; the other runs are still listed.
            state = UNMADE if isinstance(error, NotYet) else "cannot be read"
            return {"run": run.name, "state": state}
        best: Row = next(iter(status["champion"].values()), {})
        figures = {key: status[key] for key in ("state", "agent_steps", "matches")}
        champion = {"champion": best.get("player"), "rating": best.get("rating")}
        return {"run": run.name, **figures, **champion}

    def page(self, slug: str, address: Hypertext) -> str | None:
        """Return the page of a run at an address; None: there is none of this name."""
        run = self.runs[slug]
        views = self.views(run, address.page)
        documents = run.documents(views)
        content = self._content(run, address, documents)
        if content is None:
            return None
        try:
            # The status is made separately, because it is quick and need not wait for the ratings.
            status = run.documents(["status"])["status"]
        except ArenaError:
            # The frame then lacks the state; the overview shows the error.
            status = None
        frame = self._frame(run, status, address)
        # The run has ended, but this document is older than the end, so the page polls again.
        if not frame.poll_s and not self.is_static and not run.is_current(views):
            frame = replace(frame, poll_s=POLL_S)
        return render(content, frame)

    def _content(
        self, run: Run, address: Hypertext, documents: Mapping[str, Document]
    ) -> Content | None:
        """Return what a page has below its frame; None: there is no such page."""
        name = address.page
        games = self.games.get(run.slug, ()) if self.is_static else None
        links = replace(address.links, is_static=self.is_static, games=games)
        others = {links.page(one): other.slug for one, other in run.diffs.items()}
        asked = PageRequest(
            documents=documents,
            links=links,
            page=name,
            number=address.number,
            query={key: value[:MAX_QUERY] for key, value in address.query.items()},
            others=others,
        )
        if (other := run.diffs.get(name)) is not None:
            first, second = (_policies(documents[name], side) for side in SIDES)
            theirs = Links(base=f"{links.base}../{other.slug}/", names=second)
            asked = replace(asked, links=replace(links, names=first), second=theirs)
            title = f"{DIFFERENCES} of {run.name} and {other.name}"
            return Content(
                title=short(title),
                blocks=guarded(DIFFERENCES, lambda: differences(asked)),
                parts={name: href for href, name in others.items()} if len(others) > 1 else {},
                part=other.slug,
            )
        if run.view_of(name) == "game":
            # The standings are fetched separately, because they change and a finished game does
            # not.
            told, documents = documents, run.documents(["standings"])
        try:
            standings = documents["standings"]
        except ArenaError as error:
            # The overview has parts without standings; all other pages are about players.
            if name != "index":
                title = name.capitalize()
                return Content(title=short(title), blocks=[failed("Standings", error)])
            standings = {"populations": {}}
        names = names_of(standings)
        asked = replace(
            asked,
            documents=documents,
            links=replace(links, names=self.linked(names)),
            populations=tuple(standings["populations"]),
            colours=colours_of(standings),
        )
        if run.view_of(name) == "game":
            blocks = guarded("Game", lambda: asked.blocks(game(told[name])))
            return Content(title="Game", blocks=blocks)
        page = PAGES.get(name)
        if page is not None:
            blocks = guarded(page.title, lambda: page.make(asked))
            # A page that could not be made consists of one error block.
            fails = len(blocks) == 1 and blocks[0].is_alert
            divided = {} if fails else self._divided(asked)
            return Content(title=page.title, blocks=blocks, **divided)
        player = find_player(name, names)
        if player is None:
            return None
        return Content(
            title=short(player), blocks=guarded(player, lambda: player_page(asked, player))
        )

    def _divided(self, asked: PageRequest) -> dict[str, Any]:
        """Return the parts of a page that is divided by a subject, and the fields of its form."""
        if asked.page in FIELDS:
            return {"filters": filters(asked), "query": asked.query}
        if asked.page == "metrics" and (parts := parts_of_metrics(asked)):
            page = asked.links.page
            return {
                "parts": {one: page("metrics", number=number) for one, number in parts.items()},
                "part": [*parts][min(asked.number, len(parts)) - 1],
            }
        return {}

    def unmade(self, slug: str, address: Hypertext) -> str:
        """Return what is sent instead of a run's page while its documents are being made."""
        page = PAGES.get(address.page)
        note = "A league of thousands of players takes a minute. The page comes by itself."
        content = Content(
            title=short(address.page) if page is None else page.title,
            blocks=[Block(heading=UNMADE, about=note)],
        )
        frame = self._frame(self.runs[slug], None, address)
        return render(content, replace(frame, poll_s=UNMADE_POLL_S))

    def _frame(self, run: Run, status: Document | None, address: Hypertext) -> Frame:
        name, links, page = address.page, address.links, PAGES.get(address.page)
        navigation = {one.title: links.page(own) for own, one in PAGES.items()}
        if run.diffs:
            # The link leads to the only other run, or to the list of other runs.
            (first, *rest) = run.diffs
            navigation[DIFFERENCES] = (
                links.page("index", anchor=slug(OTHERS)) if rest else links.page(first)
            )
        # The page of a player or of two runs has one document, named like the page.
        names = (name,) if page is None else page.views
        data = {short(one): f"{links.base}{one}.json" for one in names}
        state = "" if status is None else str(status["state"])
        poll_s = POLL_S if state == "running" else IDLE_POLL_S
        # A finished game does not change, so its page does not poll.
        if self.is_static or state in ("finished", "failed") or run.view_of(name) == "game":
            poll_s = 0.0
        return Frame(
            root=links.root,
            run=run.name,
            state=state,
            page=DIFFERENCES if name in run.diffs else "" if page is None else page.title,
            navigation=navigation,
            poll_s=poll_s,
            is_static=self.is_static,
            # Without a status the page may not exist, so it links to no documents.
            data={} if self.is_static or status is None else data,
        )

    def player_document(self, slug: str, name: str) -> Document | None:
        """Return what a player's page shows; None: there is no page of this name."""
        documents = self.runs[slug].documents(VIEWS_OF_PLAYER)
        player = find_player(name, names_of(documents["standings"]))
        return None if player is None else player_document(documents, player)


def _policies(differences: Document, side: str) -> dict[str, str]:
    """Return the names of the pages of one run's policies; those of ghosts are not known here."""
    entries = [
        entry[side]
        for key in ("champions", "standings")
        for entry in differences[key]
        if entry[side] is not None
    ]
    players = [str(entry["player"]) for entry in entries]
    return {one: name for one in players if (name := page_name(one, None))}
