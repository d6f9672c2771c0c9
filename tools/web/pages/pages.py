"""Pages of a run, one entry each.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..content import Content
from .asked import Asked
from .events import events
from .hyperparameters import hyperparameters
from .learners import learners
from .lineage import lineage
from .metrics import metrics
from .mixture import mixture
from .openings import openings
from .overview import overview, standings
from .payoff import payoff
from .ratings import ratings


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a run.

    Attributes:
        title: Its name in the navigation.
        views: Views whose documents it needs.
        make: Function that makes its content.
        filters: Names of the fields that choose its rows.
    """

    title: str
    views: tuple[str, ...]
    make: Callable[[Asked], Content]
    filters: tuple[str, ...] = ()


PAGES: dict[str, Page] = {
    "index": Page(
        title="Overview", views=("status", "standings", "champion", "learners"), make=overview
    ),
    "standings": Page(title="Standings", views=("standings",), make=standings),
    "payoff": Page(title="Payoff", views=("payoff", "standings"), make=payoff),
    "mixture": Page(title="Mixture", views=("mixture", "standings"), make=mixture),
    "ratings": Page(title="Ratings", views=("ratings", "standings"), make=ratings),
    "lineage": Page(title="Lineage", views=("lineage", "standings"), make=lineage),
    "hyperparameters": Page(
        title="Hyperparameters", views=("hyperparameters", "standings"), make=hyperparameters
    ),
    "metrics": Page(title="Metrics", views=("metrics", "standings"), make=metrics),
    "openings": Page(title="Openings", views=("openings", "standings"), make=openings),
    "learners": Page(title="Learners", views=("learners", "standings"), make=learners),
    "events": Page(
        title="Events",
        views=("events", "standings"),
        make=events,
        filters=("kind", "player", "since", "event"),
    ),
}
"""Pages by their names in addresses, in the order of the navigation."""
