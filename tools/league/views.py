"""Views of a league, one entry each: their document, their rows, and how people see them.

A new view is an entry in `VIEWS`, which names the function that makes its document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

from ..notices import alert_lines
from .renderers import lists
from .renderers.champion import champion
from .renderers.diff import diff
from .renderers.diff import rows_of as diff_rows
from .renderers.events import events
from .renderers.hyperparameters import hyperparameters, rows_of
from .renderers.learners import learners
from .renderers.lineage import lineage
from .renderers.lives import why
from .renderers.look import Document, Look, Row
from .renderers.payoff import is_map, payoff, worst_first
from .renderers.ratings import ratings
from .renderers.standings import standings, without_twins
from .renderers.status import status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from populations.records.rows import Json

Render = Callable[[Document, Look], "Iterator[RenderableType]"]
Order = Callable[[Sequence[Row], Document], list[Row]]


def as_stored(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return rows in the order of the document."""
    return list(rows)


def never(document: Document, look: Look) -> bool:
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
        render: Function that yields what people see. None: a table of the rows.
        columns: Columns of that table; empty: every key of the rows.
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
    render: Render | None = None
    columns: tuple[str, ...] = ()
    limits: str = ""
    order: Order = as_stored
    on_screen: Callable[[Document], Document] = as_it_is
    keeps_last: bool = False
    lines: int = 1
    fits: Callable[[Document, Look], bool] = never
    warns: bool = False
    operand: Operand | None = None


def _listed(key: str) -> Callable[[Document], list[Row]]:
    """Return a function that takes a document's list of rows by its key."""
    return cast("Callable[[Document], list[Row]]", itemgetter(key))


def _standings_rows(document: Document) -> list[Row]:
    populations = cast("Mapping[str, list[Row]]", document["populations"])
    return [{"population": name, **line} for name, lines in populations.items() for line in lines]


def _rating_rows(document: Document) -> list[Row]:
    populations = cast("Mapping[str, list[Mapping[str, object]]]", document["populations"])
    return [
        {"population": name, "player": line["player"], **point}
        for name, lines in populations.items()
        for line in lines
        for point in cast("list[Row]", line["points"])
    ]


def _metric_rows(document: Document) -> list[Row]:
    return [
        {
            "policy": line["policy"],
            "agent_steps": line["agent_steps"],
            "metric": name,
            "value": value,
        }
        for line in cast("list[Row]", document["metrics"])
        for name, value in line.items()
        if name not in ("policy", "agent_steps")
    ]


def _opponent_rows(document: Document) -> list[Row]:
    """Return what each champion scores against its opponents."""
    return [
        {"population": one["population"], "player": one["player"], **row}
        for one in cast("list[Row]", document["champions"])
        for row in cast("list[Row]", one["opponents"])
    ]


def _status_rows(document: Document) -> list[Row]:
    lines = alert_lines(cast("Mapping[str, Json]", document))
    shown = {**document, "alerts": "  ".join(lines) or None}
    return [{"key": key, "value": value} for key, value in shown.items() if key != "schema"]


VIEWS: dict[str, View] = {
    "standings": View(
        document="standings_view",
        rows=_standings_rows,
        render=standings,
        on_screen=without_twins,
        limits="populations",
        warns=True,
    ),
    "ratings": View(
        document="ratings_view", rows=_rating_rows, render=ratings, limits="populations"
    ),
    "payoff": View(
        document="payoff_view",
        rows=_listed("payoff"),
        render=payoff,
        limits="payoff",
        order=worst_first,
        fits=is_map,
    ),
    "mixture": View(
        document="mixture_view", rows=_listed("mixture"), render=lists.mixture, limits="mixture"
    ),
    "cross-play": View(
        document="cross_play_view",
        rows=_listed("cross_play"),
        render=lists.cross_play,
        limits="cross_play",
    ),
    "calibration": View(
        document="calibration_view",
        rows=_listed("calibration"),
        render=lists.calibration,
        limits="calibration",
        warns=True,
    ),
    "lineage": View(document="lineage_view", rows=_listed("policies"), render=lineage),
    "hyperparameters": View(
        document="hyperparameters_view",
        rows=rows_of,
        render=hyperparameters,
        limits="policies",
    ),
    "metrics": View(
        document="metrics_view",
        rows=_metric_rows,
        columns=("policy", "agent_steps", "metric", "value"),
        limits="metrics",
        keeps_last=True,
    ),
    "matches": View(
        document="matches_view",
        rows=_listed("tallies"),
        render=lists.matches,
        limits="tallies",
        order=lists.newest,
    ),
    "openings": View(
        document="openings_view",
        rows=_listed("openings"),
        render=lists.openings,
        limits="openings",
        keeps_last=True,
    ),
    "checkpoints": View(
        document="checkpoints_view",
        rows=_listed("checkpoints"),
        render=lists.checkpoints,
        limits="checkpoints",
        order=lists.newest_checkpoints,
    ),
    "events": View(
        document="events_view",
        rows=_listed("events"),
        render=events,
        limits="events",
        keeps_last=True,
        lines=2,
    ),
    "status": View(document="status_view", rows=_status_rows, render=status),
    "learners": View(
        document="learners_view", rows=_listed("learners"), render=learners, limits="learners"
    ),
    "champion": View(document="champion_view", rows=_opponent_rows, render=champion),
    "why": View(
        document="why_view",
        rows=_listed("entries"),
        render=why,
        limits="entries",
        keeps_last=True,
        lines=2,
        operand=Operand("player", "player", "p003"),
    ),
    "diff": View(
        document="diff_view",
        rows=diff_rows,
        render=diff,
        operand=Operand("other", "second run", "RUN2"),
    ),
}
