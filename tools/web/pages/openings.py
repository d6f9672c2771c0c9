"""First decisions of each seat over training: how often each was played, and how it scored.

Tests: `tests/tools/web/test_openings.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from ..content import Block, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, lines_of, number

MAX_ACTIONS = 8
"""Actions of a chart: as many as there are colours. The table has all."""

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
            blocks += _charts(asked, title, _told(summary), rows)
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


def _charts(asked: Asked, title: str, note: str, rows: Sequence[Line]) -> Iterator[Block]:
    counts: Counter[str] = Counter()
    for row in rows:
        # What tallies do not keep apart is no action of its own.
        if row["action"] is not None:
            counts[str(row["label"])] += cast("int", row["count"])
    labels = [label for label, _ in counts.most_common(MAX_ACTIONS)]
    left_out = len(counts) - len(labels)
    if left_out:
        note += f" {left_out} rarer actions are in the table alone."
    yield Block(
        heading=f"Shares: {title}",
        note=note,
        chart=_chart(title, "share of matches", rows, labels, key="share"),
        table=_table(asked, rows, key="share"),
    )
    if any(row["score"] is not None for row in rows):
        yield Block(
            heading=f"Scores: {title}",
            note="Mean score of the matches that began with it, a draw half; 95% intervals.",
            chart=_chart(title, "score", rows, labels, key="score"),
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


def _chart(
    title: str, axis: str, rows: Sequence[Line], labels: Sequence[str], *, key: str
) -> Chart:
    return Chart(
        kind="lines",
        label=f"{axis} of first decisions of {title} over agent steps; the table has the figures",
        data={
            "x": "agent steps of the weights that played",
            "y": axis,
            # Points at the ends are whole.
            "range": [-0.02, 1.02],
            "series": [_series(label, rows, key) for label in labels],
        },
    )


def _series(label: str, rows: Sequence[Line], key: str) -> dict[str, object]:
    own = [row for row in rows if row["label"] == label and row[key] is not None]
    return {
        "name": shown(label),
        # In the middle of its window.
        "x": [
            (_whole(row["agent_steps_from"]) + _whole(row["agent_steps_to"])) // 2 for row in own
        ],
        "y": [_rounded(row[key]) for row in own],
        "low": [_rounded(row[f"{key}_low"]) for row in own],
        "high": [_rounded(row[f"{key}_high"]) for row in own],
    }


def _middle(row: Line) -> int:
    """Return the agent steps in the middle of a window."""
    return (_whole(row["agent_steps_from"]) + _whole(row["agent_steps_to"])) // 2


def _whole(value: object) -> int:
    return cast("int", value)


def _rounded(value: object) -> float | None:
    found = number(value)
    return None if found is None else round(found, 4)
