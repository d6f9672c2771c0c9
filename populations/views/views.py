"""Views of a league, one entry each: their document, their rows, and their sections.

A new view is an entry in `VIEWS`; the function of its document has its name, in
`populations.views.documents`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from populations.views import league, log, run, training
from populations.views.charts import figures
from populations.views.charts.figures import Figure
from populations.views.differences import diff
from populations.views.differences import rows_of as diff_rows
from populations.views.lineage import lineage
from populations.views.parts import Document, Room, Row, Section

Sections = Callable[[Document, Room], Iterator[Section]]
Order = Callable[[Sequence[Row], Document], list[Row]]


class Operand(NamedTuple):
    """Last argument of the command line, about which a view is.

    Attributes:
        option: Argument of the document's function that it is.
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
        figure: Its charts. None: it has none.
        lists: Lists of its document that are drawn, and are not its rows.
        is_whole: Whether pages have its document of the whole run. That of every tally of a big
            league would take a gigabyte.
        is_fitted: Whether it needs a fit of all checkpoints, which takes long.
        takes: Options of the command line that belong to the view, each with the argument of the
            document's function that it is; empty: it is none.
    """

    rows: Callable[[Document], list[Row]]
    sections: Sections
    limits: str = ""
    order: Order = lambda rows, document: list(rows)
    on_screen: Callable[[Document], Document] = lambda document: document
    keeps_last: bool = False
    lines: int = 1
    fits: Callable[[Document, Room], bool] = lambda document, room: False
    warns: bool = False
    operand: Operand | None = None
    figure: Figure | None = None
    lists: tuple[str, ...] = ()
    is_whole: bool = True
    is_fitted: bool = False
    takes: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return those that the document's function takes."""
        own = {*self.takes.values(), *(self.operand or ())[:1]}
        return {name: value for name, value in given.items() if name in own}


VIEWS: dict[str, View] = {
    "standings": View(
        rows=league.standing_rows,
        sections=league.standings,
        on_screen=league.without_twins,
        takes={"--exploitability": ""},
        limits="populations",
        warns=True,
        figure=Figure(draw=figures.standings, documents=("standings",)),
    ),
    "ratings": View(
        rows=training.rating_rows,
        sections=training.ratings,
        limits="populations",
        figure=Figure(draw=figures.ratings, documents=("ratings",)),
        lists=("champions",),
        is_fitted=True,
    ),
    "payoff": View(
        rows=itemgetter("payoff"),
        sections=league.payoff,
        limits="payoff",
        order=league.worst_first,
        fits=league.is_map,
        takes={"--player": "", "--seats": "by_seats"},
        figure=Figure(draw=figures.payoff, documents=("payoff", "standings")),
    ),
    "mixture": View(rows=itemgetter("mixture"), sections=league.mixture, limits="mixture"),
    "cross-play": View(
        rows=itemgetter("cross_play"),
        sections=league.cross_play,
        limits="cross_play",
    ),
    "calibration": View(
        rows=itemgetter("calibration"),
        sections=league.calibration,
        limits="calibration",
        warns=True,
    ),
    "lineage": View(
        rows=itemgetter("policies"),
        sections=lineage,
        figure=Figure(draw=figures.lineage, documents=("lineage",)),
        lists=("generations",),
        is_fitted=True,
    ),
    "hyperparameters": View(
        rows=training.hyperparameter_rows,
        sections=training.hyperparameters,
        takes={"--optuna": ""},
        limits="policies",
        figure=Figure(
            draw=figures.hyperparameters, documents=("hyperparameters", "standings"), columns=2
        ),
    ),
    "metrics": View(
        rows=training.metric_rows,
        sections=training.metrics,
        takes={"--metric": "names"},
        limits="metrics",
        keeps_last=True,
        figure=Figure(draw=figures.metrics, documents=("metrics", "standings"), columns=2),
    ),
    "matches": View(
        rows=itemgetter("tallies"),
        sections=log.matches,
        limits="tallies",
        order=log.newest,
        is_whole=False,
    ),
    "openings": View(
        rows=itemgetter("openings"),
        sections=training.openings,
        limits="openings",
        keeps_last=True,
        figure=Figure(draw=figures.openings, documents=("openings",), columns=2, shared="color"),
    ),
    "games": View(
        rows=itemgetter("games"),
        sections=log.games,
        takes={"--player": ""},
        limits="games",
    ),
    "checkpoints": View(
        rows=itemgetter("checkpoints"),
        sections=log.checkpoints,
        limits="checkpoints",
        order=log.newest_checkpoints,
    ),
    "events": View(
        rows=itemgetter("events"),
        sections=log.events,
        takes={"--kind": "kinds", "--since": "", "--player": ""},
        limits="events",
        keeps_last=True,
        lines=2,
    ),
    "status": View(rows=run.status_rows, sections=run.status),
    "learners": View(rows=itemgetter("learners"), sections=run.learners, limits="learners"),
    "champion": View(rows=league.opponent_rows, sections=league.champion, is_fitted=True),
    "why": View(
        rows=itemgetter("entries"),
        sections=log.why,
        limits="entries",
        keeps_last=True,
        lines=2,
        operand=Operand("player", "player", "p003"),
        is_whole=False,
    ),
    "diff": View(
        rows=diff_rows,
        sections=diff,
        operand=Operand("other", "second run", "RUN2"),
        is_whole=False,
    ),
}
