"""First decisions of each seat over training: how often each was played, and how it scored.

Tests: `tests/tools/web/test_openings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from populations.views import charts

from ...show.labels import reader
from ..content import Block, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, lines_of, number

UNCOUNTABLE = (
    "First decisions of this seat are not counted: they have numbers, or they or the seats are too "
    "many."
)
NONE = "No evaluation match of weights that are known has told its first decisions yet."


def openings(asked: Asked) -> Content:
    """Return shares and scores of first decisions, of all policies and of the champion's."""
    document = asked.documents["openings"]
    every = lines_of(document, "openings")
    blocks: list[Block] = []
    for summary in lines_of(document, "summary"):
        keys = ("population", "seat", "player")
        rows = [row for row in every if all(row[key] == summary[key] for key in keys)]
        player = summary["player"]
        title = f"{shown(summary['seat'])}, " + (
            "all policies" if player is None else f"{asked.short(player)}, of the champion"
        )
        if rows:
            # All charts of a seat have the same openings in the same colours.
            seat = [row for row in every if all(row[key] == summary[key] for key in keys[:2])]
            blocks += _charts(asked, title, _told(summary), rows, seat)
        elif player is None:
            note = NONE if summary["is_counted"] else UNCOUNTABLE
            blocks.append(Block(heading=title, note=note))
    return Content(title="Openings", blocks=blocks)


def _told(summary: Line) -> str:
    """Return what a seat's windows say, in sentences."""
    share, change = number(summary["share"]), number(summary["mean_change"])
    period = summary["period_agent_steps"]
    return (
        f"Now {shown(summary['label'])} is played most, in {share or 0.0:.0%} of the matches; it "
        f"leads since {shown(summary['since_agent_steps'])} agent steps, and the lead has changed "
        f"{_whole(summary['favourites']) - 1:,} times in windows of "
        f"{shown(summary['window_agent_steps'])} agent steps"
        + ("" if change is None else f"; from one to the next {change:.0%} of the mix changes")
        + (f"; mixes return after {shown(period)} agent steps." if period is not None else ".")
    )


def _charts(
    asked: Asked, title: str, note: str, rows: Sequence[Line], seat: Sequence[Line]
) -> Iterator[Block]:
    which = charts.Openings.of(seat, reader(asked.populations))
    left_out = len({row["action"] for row in rows} - {None}) - len(charts.NINE)
    if left_out > 0:
        note += f" {left_out} rarer actions are among the others; the table has each."
    of = f"of first decisions of {title} over agent steps; the table has the figures"
    yield Block(
        heading=f"Shares: {title}",
        note=note,
        chart=Chart(
            kind="vega",
            label=f"share of matches {of}",
            data=charts.shares(rows, which, reader(asked.populations)),
        ),
        table=_table(asked, rows, key="share"),
    )
    if any(row["score"] is not None for row in rows):
        yield Block(
            heading=f"Scores: {title}",
            note="Mean score of the matches that began with it, a draw half. A stroke: none, or "
            f"its 95% interval is wider than {charts.MAX_WIDTH:g}; blank: no matches.",
            chart=Chart(
                kind="vega",
                label=f"score {of}",
                data=charts.scores(rows, which, reader(asked.populations)),
            ),
            table=_table(asked, rows, key="score"),
        )


def _table(asked: Asked, rows: Sequence[Line], *, key: str) -> Table:
    return asked.part(
        ["from", "to", "matches", "first decision", "count", key, "95%"],
        rows,
        lambda row: Row(
            cells=[
                *(cell(row[one]) for one in ("agent_steps_from", "agent_steps_to", "matches")),
                cell(row["label"]),
                cell(row["count"]),
                cell(row[key]),
                cell(_interval(row, key)),
            ]
        ),
        csv="openings",
    )


def _interval(row: Line, key: str) -> str | None:
    low, high = number(row[f"{key}_low"]), number(row[f"{key}_high"])
    return None if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _whole(value: object) -> int:
    return cast("int", value)
