"""Differences of two runs side by side: the document that `arena league RUN diff RUN2` prints.

Tests: `tests/tools/web/test_diff.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from populations.league.names import short_name
from populations.views import chart_parts, charts

from ...league.renderers.diff import (
    SIDES,
    cut_apart,
    exact,
    figure_text,
    figure_title,
    figures_of,
)
from ...league.renderers.look import text_of
from ...show.labels import reader
from ..content import Block, Cell, Chart, Content, Row, Table, cell, page_name, part, shown
from .asked import Document, Line, interval, lines_of, number

DIFFERENCES = "Differences"

MAX_LABEL = 20
MAX_NOTE = 1000
MAX_WHISKERS = 10
"""Places of the chart of standings."""

MAX_PLACES = 50
MAX_ROWS = 200

Texts = Sequence[str]
"""A key, and a text of each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Page of two runs.

    Attributes:
        document: Differences.
        labels: Names of the runs.
        ways: Ways from the page to the folders of the runs.
        csv: Address of all rows.
    """

    document: Document
    labels: Sequence[str]
    ways: Sequence[str]
    csv: str

    def by_population(self, key: str) -> dict[str, list[Line]]:
        """Return the entries of a list of the document by their populations."""
        found: dict[str, list[Line]] = {}
        for entry in lines_of(self.document, key):
            found.setdefault(str(entry["population"]), []).append(entry)
        return found

    def table(self, columns: Sequence[str], rows: Sequence[Row], *, most: int = MAX_ROWS) -> Table:
        """Return a table, with a link to all rows."""
        return Table(columns=columns, rows=rows[:most], total=len(rows), csv=self.csv)

    def beside(self, rows: Sequence[Texts], *, first: Sequence[Row] = ()) -> Table:
        """Return a table of a key and a text of each run."""
        made = [Row(cells=[Cell(text=shown(text)) for text in row]) for row in rows]
        table = self.table(["", *self.labels], [*first, *made])
        return replace(table, is_wrapped=True)

    def short(self, player: object) -> str:
        """Return a player's name in few characters."""
        return shown(short_name(str(player), populations=self.by_population("standings")))

    def player(self, line: Line, side: int) -> Cell:
        """Return the cell of a player of the first or second run."""
        if line.get("player") is None:
            return cell(None)
        name = str(line["player"])
        # Pages of ghosts have the names of digests, which are not in the document.
        page = page_name(name, None)
        href = f"{self.ways[side]}{page}.html" if page else ""
        return Cell(text=self.short(name), href=href, title=shown(name))


def diff(
    document: Document, *, page: str, ways: Sequence[str], others: Mapping[str, str]
) -> Content:
    """Return what differs: figures, players, configuration, PBT and alerts of both runs.

    Args:
        document: Differences of the runs.
        page: Name of the page in addresses.
        ways: Ways from the page to the folders of the runs.
        others: Names of all runs beside the first one, by the addresses of the differences to them.
    """
    runs = cast("Mapping[str, Line]", document["runs"])
    labels = [shown(str(runs[side]["label"]), most=MAX_LABEL) for side in SIDES]
    here = f"{ways[0]}{page}"
    made = _Page(document=document, labels=labels, ways=ways, csv=f"{here}.csv")
    sections: tuple[Callable[[_Page], Iterator[Block]], ...] = (
        *(_meaning, _alerts, _figures, _standings, _hyperparameters, _opponents, _evolution),
        *(_versions, _configuration),
    )
    return Content(
        title=f"{DIFFERENCES} of {' and '.join(labels)}",
        blocks=[
            block
            for section in sections
            for block in part(section.__name__.strip("_").capitalize(), partial(section, made))
        ],
        parts={name: href for href, name in others.items()} if len(others) > 1 else {},
        part=others.get(f"{here}.html", ""),
    )


def _meaning(page: _Page) -> Iterator[Block]:
    """Yield how to read the figures, and the command that tells more."""
    notes = [shown(note, most=MAX_NOTE) for note in cast("list[object]", page.document["notes"])]
    asked = cast("Line", page.document["evaluate"])
    command = asked["command"]
    notes.append(
        f"No matches between them: {shown(asked['reason'])}."
        if command is None
        else "Matches between their champions would tell which is better:"
    )
    lines = [] if command is None else [shown(command, most=MAX_NOTE)]
    yield Block(heading="Which is better", note=" ".join(notes), lines=lines)


def _alerts(page: _Page) -> Iterator[Block]:
    lines = [
        f"{label}: {shown(entry['key'])}: {shown(entry[side], most=MAX_NOTE)}"
        for entry in lines_of(page.document, "alerts")
        for side, label in zip(SIDES, page.labels, strict=True)
        if entry[side] is not None
    ]
    if lines:
        yield Block(heading="Alerts", lines=lines[:MAX_ROWS], is_alert=True)


def _figures(page: _Page) -> Iterator[Block]:
    rows = [
        (figure_title(entry), *(figure_text(entry, side) for side in SIDES))
        for entry in figures_of(page.document)
    ]
    both = zip(page.labels, page.ways, strict=True)
    links = [Cell(text=label, href=f"{way}index.html") for label, way in both]
    are_equal = [entry["first"] == entry["second"] for entry in figures_of(page.document)]
    yield _compared(page, "Figures", rows, are_equal, first=[Row(cells=[cell("run"), *links])])


def _compared(
    page: _Page,
    heading: str,
    rows: Sequence[Texts],
    are_equal: Sequence[bool],
    *,
    first: Sequence[Row] = (),
) -> Block:
    """Return a table of what differs, with a note of what is the same in both runs.

    Args:
        page: The page.
        heading: Heading of the section.
        rows: Keys with a text of each run.
        are_equal: Whether the values are equal, of which texts show three digits.
        first: Rows above.
    """
    both = list(zip(rows, are_equal, strict=True))
    different = [row for row, is_equal in both if not is_equal]
    same = ", ".join(f"{shown(key)} {shown(text)}" for (key, text, _), is_equal in both if is_equal)
    return Block(
        heading=heading,
        note=f"The same in both: {shown(same, most=MAX_NOTE)}." if same else "",
        table=page.beside(different, first=first) if different or first else None,
    )


def _standings(page: _Page) -> Iterator[Block]:
    champions = page.by_population("champions")
    per_run = [column for label in page.labels for column in (label, "rating", "95%", "steps")]
    for name, entries in page.by_population("standings").items():
        rows = [
            Row(cells=[cell(entry["key"]), *_places(page, entry)])
            for entry in (*champions.get(name, ()), *entries)
        ]
        yield Block(
            heading=f"Standings of {name}",
            note="Policies by their places, each run on its own scale, with 95% intervals: a "
            "rating of one run says nothing about a rating of the other.",
            chart=_paired(
                page,
                [
                    (str(entry["key"]), [_rated(page, entry[side]) for side in SIDES])
                    for entry in entries[:MAX_WHISKERS]
                ],
                label=f"Ratings of the best policies of {name} in both runs",
                x="rating in Elo, 95% interval",
            ),
            table=page.table(["place", *per_run], rows, most=MAX_PLACES),
        )


def _places(page: _Page, entry: Line) -> Iterator[Cell]:
    for index, side in enumerate(SIDES):
        line = cast("Line", entry[side] or {})
        yield page.player(line, index)
        yield cell(line.get("rating"))
        yield cell(interval(line) if line else None)
        yield cell(line.get("agent_steps"))


def _rated(page: _Page, one: object) -> Line:
    line = cast("Line", one or {"rating": None, "rating_low": None, "rating_high": None})
    (high,) = chart_parts.upper_ends([line])
    found = {"value": line["rating"], "low": line["rating_low"], "high": high}
    return {"player": page.short(line.get("player")), **found}


def _paired(
    page: _Page, rows: Sequence[tuple[str, Sequence[Line]]], *, label: str, x: str
) -> Chart:
    """Return whiskers of both runs, those of a row beside each other."""
    return Chart(
        kind="vega",
        label=f"{label}; the table has the figures",
        data=charts.differences(rows, page.labels, reader(()), title=x),
    )


def _hyperparameters(page: _Page) -> Iterator[Block]:
    for name, entries in page.by_population("champions").items():
        for entry in entries:
            found = [cast("Line | None", entry[side]) for side in SIDES]
            # Numbers of one champion alone are no difference.
            if None in found:
                continue
            one, two = (cast("Line", line["hyperparameters"]) for line in found if line)
            keys = list(dict.fromkeys((*one, *two)))
            yield _compared(
                page,
                f"Hyperparameters of the champions of {name}",
                [(key, text_of(one.get(key)), text_of(two.get(key))) for key in keys],
                [one.get(key) == two.get(key) for key in keys],
            )


def _opponents(page: _Page) -> Iterator[Block]:
    per_run = [column for label in page.labels for column in (label, "score", "95%", "matches")]
    for name, entries in page.by_population("opponents").items():
        rows = [
            Row(cells=[cell(entry["key"]), *_results(page, entry)], line=_result_line(page, entry))
            for entry in entries
        ]
        yield Block(
            heading=f"Scores of the champions of {name}",
            note="Against bots that both runs have met, in evaluation matches. Copy takes both "
            "results as one line of text.",
            chart=_paired(
                page,
                [
                    (shown(entry["key"], most=MAX_LABEL), [_scored(page, entry[s]) for s in SIDES])
                    for entry in entries[:MAX_WHISKERS]
                ],
                label=f"Scores of the champions of {name} against bots",
                x="score, 95% interval",
            ),
            table=page.table(["opponent", *per_run, "as text"], rows),
        )


def _results(page: _Page, entry: Line) -> Iterator[Cell]:
    for index, side in enumerate(SIDES):
        line = cast("Line", entry[side])
        yield page.player(line, index)
        yield cell(line["score"])
        yield cell(_score_interval(line))
        yield cell(line["matches"])


def _score_interval(line: Line) -> str | None:
    low, high = number(line["score_low"]), number(line["score_high"])
    return None if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _scored(page: _Page, found: object) -> Line:
    line = cast("Line", found)
    ends = {"low": line["score_low"], "high": line["score_high"]}
    return {"player": page.short(line["player"]), "value": line["score"], **ends}


def _result_line(page: _Page, entry: Line) -> str:
    """Return a bot's results against both champions as one line of text."""
    lines = (cast("Line", entry[side]) for side in SIDES)
    return f"against {shown(entry['key'])}: " + "; ".join(
        f"{shown(line['player'])} of {label}: score {shown(line['score'])} "
        f"(95% {_score_interval(line) or '-'}) in {shown(line['matches'])} matches"
        for label, line in zip(page.labels, lines, strict=True)
    )


def _evolution(page: _Page) -> Iterator[Block]:
    for name, entries in page.by_population("evolution").items():
        # Of what never happened nothing is said.
        own = [entry for entry in entries if any(entry[side] for side in SIDES)]
        yield _compared(
            page,
            f"PBT of {name}",
            [(shown(entry["key"]), *(text_of(entry[side]) for side in SIDES)) for entry in own],
            [entry["first"] == entry["second"] for entry in own],
        )


def _versions(page: _Page) -> Iterator[Block]:
    yield _different(page, "versions", text_of)


def _configuration(page: _Page) -> Iterator[Block]:
    yield _different(page, "configuration", exact)


def _different(page: _Page, name: str, show: Callable[[object], str]) -> Block:
    part = cast("Line", page.document[name])
    entries = lines_of(part, "different")
    rows = [
        (str(entry["key"]), *cut_apart([show(entry[side]) for side in SIDES], shown))
        for entry in entries
    ]
    return Block(
        heading=name.capitalize(),
        note=f"{len(entries)} different, {shown(part['equal'])} equal.",
        table=page.beside(rows) if rows else None,
    )
