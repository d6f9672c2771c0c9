"""Pages of what happened: events, games, metrics, learners, the differences to another run.

Tests: `tests/tools/web/test_pages.py`, `tests/tools/web/test_metrics.py`,
`tests/tools/web/test_diff.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from populations.views.charts import curves
from populations.views.charts import results as charts
from populations.views.charts.parts import upper_ends
from populations.views.log import EVENTS
from populations.views.parts import SIDES, Document, Line, Row, Section, Table, player
from populations.views.texts import moment

from ...league.narrowing import QUIET, select_rows
from ...show.html import Block, short
from .page_request import PageRequest

MAX_WHISKERS = 10
"""Places of a chart of two runs."""


FIRST = "training"
"""Title of the first part of metrics: what tells how training goes."""

NONE = (
    "There are no metrics: they are read from metrics.jsonl, which is written where metrics.sinks "
    "names jsonl."
)


class Filter(NamedTuple):
    """Field by which rows are chosen."""

    name: str
    label: str
    choices: Sequence[str] = ()


FIELDS: Mapping[str, tuple[str, ...]] = {
    "events": ("kind", "player", "since", "event"),
    "games": ("player", "opponent"),
}
"""Names of the fields that choose rows, by page."""


def filters(asked: PageRequest) -> list[Filter]:
    """Return the fields of the form of a page."""
    if asked.page == "games":
        return [Filter(name, name.capitalize()) for name in FIELDS["games"]]
    kinds = sorted({str(line["kind"]) for line in asked.rows("events", "events")})
    return [
        Filter("kind", "Kind", kinds),
        Filter("player", "Player"),
        Filter("since", "Since (UTC, 2026-01-31T12:00)"),
    ]


def games(asked: PageRequest) -> Iterator[Block]:
    """Yield the games that are kept, of players that the filters name."""
    every = asked.rows("games", "games")
    chosen = every
    for name in filter(None, (asked.query.get(key, "") for key in FIELDS["games"])):
        chosen = select_rows(chosen, player=name)

    def make() -> Iterator[Section]:
        about = f"{len(chosen):,} of {len(every):,}, the newest first."
        if asked.links.games is not None:
            about += " arena replay RUN --id ID shows those without a link."
        for section in asked.sections("games", {"games": chosen}):
            yield replace(section, about=about, below=() if every else section.below)

    yield from asked.part("Games", make, csv="games")


def event_table(rows: Sequence[Row]) -> Table:
    """Return events, each with a name in addresses."""
    columns = (*EVENTS[:3], player("subject", "about"), *EVENTS[3:])
    return Table(columns, rows, anchor="event {sequence}")


def events(asked: PageRequest) -> Iterator[Block]:
    """Yield the events that the filters leave, the newest first."""
    every = asked.rows("events", "events")
    kind, name, since, event = (asked.query.get(key, "") for key in FIELDS["events"])
    loud = (
        row for row in every[::-1] if (row["kind"] == kind if kind else row["kind"] not in QUIET)
    )
    chosen = (
        [row for row in every if str(row["sequence"]) == event]
        if event
        else select_rows(loud, player=name or None, since=moment(since))
    )
    hidden = "" if kind else " Assignments and fits are shown when their kind is chosen."
    section = Section(
        title=Line("Events, the newest first"),
        about=f"{len(chosen):,} of {len(every):,}.{hidden}",
        body=event_table(chosen),
    )
    yield from asked.part("Events", lambda: [section], csv="events")


def groups_of(lines: Sequence[Row]) -> dict[str, list[str]]:
    """Return the names of metrics by their groups, sorted; before them what is telling."""
    found = {name for line in lines for name in line} - {"policy", "agent_steps"}
    telling = [name for name in curves.DEFAULT_METRICS if name in found]
    groups = {FIRST: telling} if telling else {}
    for group, names in groupby(sorted(found), key=lambda name: name.split("/")[0]):
        groups.setdefault(f"{group}/", []).extend(names)
    return groups


def parts_of_metrics(asked: PageRequest) -> dict[str, int]:
    """Return the numbers of the parts by their titles."""
    groups = groups_of(asked.rows("metrics", "metrics"))
    return {short(title): number for number, title in enumerate(groups, 1)}


def metrics(asked: PageRequest) -> Iterator[Block]:
    """Yield the charts of a group of metrics; each policy's last and extreme figures below."""
    lines = asked.rows("metrics", "metrics")
    if num_bad := asked.documents["metrics"].get("left_out"):
        note = f"Lines of metrics.jsonl that cannot be read: {num_bad}."
        yield Block(heading="Left out", about=note)
    groups = groups_of(lines)
    if not groups:
        yield Block(heading="Metrics", about=NONE)
        return
    names = [*groups.values()][min(asked.number, len(groups)) - 1]
    # The page number selected the group, whose tables have a single part.
    asked = replace(asked, number=1)
    chosen = {**asked.documents["metrics"], "names": names}
    yield from asked.part("Metrics", lambda: asked.charts("metrics", metrics=chosen), csv="metrics")


def learners(asked: PageRequest) -> Iterator[Block]:
    """Yield all learners that have taken part, what they do, and their faults."""
    yield from asked.part("Learners", lambda: asked.sections("learners"), csv="learners")
    faults = [
        Line("{learner:player}: {fault}", {**row, "fault": fault})
        for row in asked.rows("learners", "learners")
        for fault in row["faults"]
    ]
    if faults:
        yield from asked.part("Faults", lambda: [Section(title=Line("Faults"), below=faults)])


def differences(asked: PageRequest) -> Iterator[Block]:
    """Yield what differs between two runs; the first ones of ratings and scores have a chart."""
    (name,) = asked.documents

    def make() -> Iterator[Section]:
        document = asked.documents[name]
        yield from _charts(asked, document)
        yield from asked.sections("diff", document)

    for block in asked.part("Differences", make):
        yield replace(block, csv=f"{asked.links.base}{name}.csv")


def _charts(asked: PageRequest, document: Document) -> Iterator[Section]:
    """Yield ratings of the best policies, and scores against bots, of both runs."""
    runs = document["runs"]
    labels = [short(runs[side]["label"], 20) for side in SIDES]
    wanted = (
        ("standings", "rating", "Ratings of the best policies of {name} in both runs"),
        ("opponents", "score", "Scores of the champions of {name} against bots"),
    )
    titles = {"rating": "rating (Elo), 95% interval", "score": "score, 95% interval"}
    for view, key, heading in wanted:
        entries = document[view]
        for population in dict.fromkeys(str(entry["population"]) for entry in entries):
            own = [one for one in entries if one["population"] == population][:MAX_WHISKERS]
            rows: list[tuple[str, Sequence[Any]]] = [
                (short(one["key"], 20), [_point(asked, one[side], key) for side in SIDES])
                for one in own
            ]
            yield Section(
                title=Line(heading, {"name": population}),
                chart=charts.differences(rows, labels, asked.reader, title=titles[key]),
            )


def _point(asked: PageRequest, line: Row | None, key: str) -> Row:
    """Return a value of a run with its interval as a chart has it."""
    if line is None:
        return {"player": "", "value": None, "low": None, "high": None}
    high = upper_ends([line])[0] if key == "rating" else line[f"{key}_high"]
    player = asked.reader.player(str(line["player"]))
    return {"player": player, "value": line[key], "low": line[f"{key}_low"], "high": high}
