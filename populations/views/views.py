"""Views of a league, one entry each: their document, their rows, and their sections.

A new view is an entry in `VIEWS`, which names the function that makes its document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, cast

from populations.views import league, log, run, training
from populations.views.differences import diff
from populations.views.differences import rows_of as diff_rows
from populations.views.lineage import lineage
from populations.views.parts import Document, Room, Row, Section

Sections = Callable[[Document, Room], Iterator[Section]]
Order = Callable[[Sequence[Row], Document], list[Row]]


def as_stored(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return rows in the order of the document."""
    return list(rows)


def never(document: Document, room: Room) -> bool:
    """Return that a document has no form that shows all of it on one screen."""
    return False


def as_it_is(document: Document) -> Document:
    """Return a document of which screens show everything."""
    return document


class Operand(NamedTuple):
    """Last argument of the command line, about which a view is.

    Attributes:
        option: Option of the document's function that it is.
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
        document: Function of `populations.inspection.views` that makes the view's document from an
            inspection and a population (None: all). By name, for its module takes long to import.
        rows: Function that takes the flat rows out of the view's document.
        sections: Function that yields what people see.
        limits: Key of the document whose entries ``--limit`` counts: a list, or lists or entries by
            name. Empty: the view is never cut.
        order: Order of these entries for people and under a limit.
        on_screen: Function that leaves out of the document what screens do not repeat.
        keeps_last: Whether a limit keeps the last entries, not the first.
        lines: Lines of a screen that an entry takes, about.
        fits: Function that tells whether a form of the view needs no limit.
        warns: Warnings about ratings below the table.
        operand: Last argument that the view needs. None: it takes none.
    """

    document: str
    rows: Callable[[Document], list[Row]]
    sections: Sections
    limits: str = ""
    order: Order = as_stored
    on_screen: Callable[[Document], Document] = as_it_is
    keeps_last: bool = False
    lines: int = 1
    fits: Callable[[Document, Room], bool] = never
    warns: bool = False
    operand: Operand | None = None


def _listed(key: str) -> Callable[[Document], list[Row]]:
    """Return a function that takes a document's list of rows by its key."""
    return cast("Callable[[Document], list[Row]]", itemgetter(key))


VIEWS: dict[str, View] = {
    "standings": View(
        document="standings_view",
        rows=league.standing_rows,
        sections=league.standings,
        on_screen=league.without_twins,
        limits="populations",
        warns=True,
    ),
    "ratings": View(
        document="ratings_view",
        rows=training.rating_rows,
        sections=training.ratings,
        limits="populations",
    ),
    "payoff": View(
        document="payoff_view",
        rows=_listed("payoff"),
        sections=league.payoff,
        limits="payoff",
        order=league.worst_first,
        fits=league.is_map,
    ),
    "mixture": View(
        document="mixture_view", rows=_listed("mixture"), sections=league.mixture, limits="mixture"
    ),
    "cross-play": View(
        document="cross_play_view",
        rows=_listed("cross_play"),
        sections=league.cross_play,
        limits="cross_play",
    ),
    "calibration": View(
        document="calibration_view",
        rows=_listed("calibration"),
        sections=league.calibration,
        limits="calibration",
        warns=True,
    ),
    "lineage": View(document="lineage_view", rows=_listed("policies"), sections=lineage),
    "hyperparameters": View(
        document="hyperparameters_view",
        rows=training.hyperparameter_rows,
        sections=training.hyperparameters,
        limits="policies",
    ),
    "metrics": View(
        document="metrics_view",
        rows=training.metric_rows,
        sections=training.metrics,
        limits="metrics",
        keeps_last=True,
    ),
    "matches": View(
        document="matches_view",
        rows=_listed("tallies"),
        sections=log.matches,
        limits="tallies",
        order=log.newest,
    ),
    "openings": View(
        document="openings_view",
        rows=_listed("openings"),
        sections=training.openings,
        limits="openings",
        keeps_last=True,
    ),
    "checkpoints": View(
        document="checkpoints_view",
        rows=_listed("checkpoints"),
        sections=log.checkpoints,
        limits="checkpoints",
        order=log.newest_checkpoints,
    ),
    "events": View(
        document="events_view",
        rows=_listed("events"),
        sections=log.events,
        limits="events",
        keeps_last=True,
        lines=2,
    ),
    "status": View(document="status_view", rows=run.status_rows, sections=run.status),
    "learners": View(
        document="learners_view", rows=_listed("learners"), sections=run.learners, limits="learners"
    ),
    "champion": View(document="champion_view", rows=league.opponent_rows, sections=league.champion),
    "why": View(
        document="why_view",
        rows=_listed("entries"),
        sections=log.why,
        limits="entries",
        keeps_last=True,
        lines=2,
        operand=Operand("player", "player", "p003"),
    ),
    "diff": View(
        document="diff_view",
        rows=diff_rows,
        sections=diff,
        operand=Operand("other", "second run", "RUN2"),
    ),
}
