"""Pages of a run, one entry each.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...show.html import Block
from . import configuration, league, log, training
from .asked import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a run.

    Attributes:
        title: Its name in the navigation.
        views: Views whose documents it needs.
        make: Function that makes its blocks.
        filters: Names of the fields that choose its rows.
    """

    title: str
    views: tuple[str, ...]
    make: Callable[[Asked], Iterator[Block]]
    filters: tuple[str, ...] = ()


PAGES: dict[str, Page] = {
    "index": Page(
        title="Overview",
        views=("configuration", "status", "standings", "champion", "ratings", "learners"),
        make=league.overview,
    ),
    "standings": Page(title="Standings", views=("standings",), make=league.standings),
    "payoff": Page(title="Payoff", views=("payoff", "standings"), make=league.payoff),
    "mixture": Page(title="Mixture", views=("mixture", "standings"), make=league.mixture),
    "ratings": Page(title="Ratings", views=("ratings", "standings"), make=league.rated),
    "lineage": Page(title="Lineage", views=("lineage", "standings"), make=training.lineage),
    "hyperparameters": Page(
        title="Hyperparameters",
        views=("hyperparameters", "standings"),
        make=training.hyperparameters,
    ),
    "metrics": Page(title="Metrics", views=("metrics", "standings"), make=training.metrics),
    "openings": Page(title="Openings", views=("openings", "standings"), make=training.openings),
    "learners": Page(title="Learners", views=("learners", "standings"), make=log.learners),
    "events": Page(
        title="Events",
        views=("events", "standings"),
        make=log.events,
        filters=("kind", "player", "since", "event"),
    ),
    "configuration": Page(
        title="Configuration",
        views=("configuration", "standings"),
        make=configuration.configuration,
    ),
}
"""Pages by their names in addresses, in the order of the navigation."""
