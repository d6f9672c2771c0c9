"""Pages of a run, one entry each.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from populations.views.views import VIEWS

from ...show.html import Block
from . import configuration, league, log
from .page_request import PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a run.

    Attributes:
        title: Its name in the navigation.
        views: Views whose documents it needs.
        make: Function that makes its blocks.
    """

    title: str
    views: tuple[str, ...]
    make: Callable[[PageRequest], Iterator[Block]]


def view_page(asked: PageRequest) -> Iterator[Block]:
    """Yield the charts of the view that a page is named after, and its sections."""
    name = asked.page
    # Further parts of a long table have no charts.
    if VIEWS[name].figure and asked.number == 1:
        yield from asked.part(name.capitalize(), lambda: asked.charts(name), csv=name)
    yield from asked.part(name.capitalize(), lambda: asked.sections(name), csv=name)


MAKES: Mapping[str, Callable[[PageRequest], Iterator[Block]]] = {
    "standings": league.standings,
    "payoff": league.payoff,
    "mixture": league.mixture,
    "ratings": lambda asked: itertools.chain(view_page(asked), league.champions(asked)),
    "metrics": log.metrics,
    "games": log.games,
    "learners": log.learners,
    "events": log.events,
    "configuration": configuration.configuration,
}
"""Functions that make pages which are more than their view, by the document that each is about."""

PAGES: dict[str, Page] = {
    "index": Page(
        title="Overview",
        views=("configuration", "status", "standings", "champion", "ratings", "learners"),
        make=league.overview,
    ),
    **{
        name: Page(
            title=name.capitalize(),
            # The standings are needed, because names of players link to their pages.
            views=tuple(dict.fromkeys((name, "standings"))),
            make=MAKES.get(name, view_page),
        )
        for name in (*(name for name, view in VIEWS.items() if view.has_page), "configuration")
    },
}
"""Pages by their names in addresses, in the order of the navigation."""
