"""Export of the page as files that work opened from disk and from any web server.

Tests: `tests/tools/web/test_export.py`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from populations.views.views import VIEWS

from ..show.html import Hypertext, game_page
from .pages.page_request import names_of
from .pages.pages import PAGES
from .pages.player import VIEWS_OF_PLAYER, player_document
from .render import static_files
from .runs import LISTS, PartFailed, Run, csv_text
from .site import Site

MAX_GHOST_PAGES = 500
"""Ghosts that have a page in an export: the best rated ones. The others are in its tables."""

MAX_PARTS = 200
"""Parts of one long table."""

MAX_GAMES = 20
"""Games that have a page in an export: half of them the champions' worst, the others the newest."""

GAMES_S = 120.0
"""Time after which no further game is told for an export."""

TABLES = (
    *dict.fromkeys(
        view
        for views in (*(page.views for page in PAGES.values()), VIEWS_OF_PLAYER)
        for view in views
        if view in VIEWS
    ),
    *LISTS,
)
"""Rows that are written as CSV: all that pages need."""


def write_export(runs: Mapping[str, Run], target: Path) -> int:
    """Write the pages of runs.

    Args:
        runs: Runs by their names in addresses.
        target: Directory; files of the same names are replaced.

    Returns:
        Number of files.
    """
    games = {slug: told_games(run) for slug, run in runs.items()}
    site = Site(runs, is_static=True, linked=best_linked, games=games)
    count = 0
    for name, content in files_of(site):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        count += 1
    return count


def best_linked(names: dict[str, str]) -> dict[str, str]:
    """Return the players that have a page in an export: all policies, and the best ghosts."""
    # The first ghosts are the best, because names are in the order of the standings.
    ghosts = (player for player in names if "@" in player)
    chosen = set(itertools.islice(ghosts, MAX_GHOST_PAGES))
    return {p: name for p, name in names.items() if "@" not in p or p in chosen}


def told_games(run: Run) -> list[str]:
    """Have the games of a run told that get a page, and return them."""
    with suppress(PartFailed):
        status = run.documents(["status"])["status"]
        champions = [str(one["player"]) for one in status["champion"].values()]
        documents = run.documents(VIEWS_OF_PLAYER)
        each = MAX_GAMES // 2 // max(len(champions), 1)
        found = [player_document(documents, one)["games"][:each] for one in champions]
        newest = documents["games"]["games"][: MAX_GAMES // 2]
        wanted = dict.fromkeys(str(row["game"]) for rows in (*found, newest) for row in rows)
        ends_s = time.monotonic() + GAMES_S
        return [
            game
            for game in wanted
            if time.monotonic() < ends_s and run.documents([game_page(game)])
        ]
    # The pages of the run show the error.
    return []


def files_of(site: Site) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a site by their names, ``index.html`` first."""
    yield "index.html", site.index().encode()
    for name, content in static_files().items():
        yield f"static/{name}", content
    for slug, run in site.runs.items():
        for name, text in _pages(site, run):
            yield f"{slug}/{name}", text.encode()


def _pages(site: Site, run: Run) -> Iterator[tuple[str, str]]:
    for name in (*PAGES, *run.diffs):
        yield from _parts(site, run, name)
    for name in (*TABLES, *run.diffs):
        yield from _csv(run, name)
    try:
        for game in site.games.get(run.slug, ()):
            yield from _parts(site, run, game_page(game))
        names = site.linked(names_of(run.documents(["standings"])["standings"]))
    except PartFailed:
        # The standings page shows the error.
        return
    for name in dict.fromkeys(names.values()):
        yield from _parts(site, run, name)


def _csv(run: Run, name: str) -> Iterator[tuple[str, str]]:
    """Yield rows, if there are any: of a view that failed the page says so."""
    with suppress(PartFailed):
        text = csv_text(run, name)
        assert text is not None, f"{name} has rows"
        yield f"{name}.csv", text


def _parts(site: Site, run: Run, page: str) -> Iterator[tuple[str, str]]:
    """Yield a page and the parts that follow it."""
    for number in range(1, MAX_PARTS + 1):
        text = site.page(run.slug, Hypertext(page=page, number=number))
        assert text is not None, f"the site has a page {page}"
        name = page if number == 1 else f"{page}-{number}"
        yield f"{name}.html", text
        # The page links to the next part if there are more rows.
        if f'href="{page}-{number + 1}.html"' not in text:
            return
