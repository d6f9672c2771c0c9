"""Ratings of policies over their training.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from typing import cast

from populations.views.curves import champions
from populations.views.curves import ratings as rating_curves

from ...show.labels import reader
from ..content import Block, Chart, Content, Row, Table, cell, moment
from .asked import Asked, Line, best_policies, interval, lines_of, standing_lines

MAX_LINES = 16
"""Lines of one chart: more cannot be told apart."""

COLUMNS = ("player", "agent steps", "rating", "95%", "generation", "cause", "given out")


def ratings(asked: Asked) -> Content:
    """Return ratings of policies over their training, of one fit, and the champions."""
    document = asked.documents["ratings"]
    blocks = []
    for name, lines in standing_lines(document).items():
        by_player = {str(line["player"]): cast("list[Line]", line["points"]) for line in lines}
        best = [p for p in best_policies(asked, name) if by_player.get(p)][:MAX_LINES]
        rated = [line for line in lines if line["points"]]
        on_page = reader(asked.populations, asked.links.player)
        points = [{**point, "player": one} for one in best for point in by_player[one]]
        blocks.append(
            Block(
                heading=f"Ratings of {name}",
                note=f"All points are of one fit, with 95% intervals. {len(best)} of "
                f"{len(lines):,} policies, the best now. A triangle marks a copy of other weights.",
                chart=Chart(
                    kind="vega",
                    label="Ratings over agent steps, one line per policy; the table has the "
                    "figures",
                    data=rating_curves(rated, on_page),
                )
                if rated
                else None,
                table=asked.part(
                    COLUMNS, points, lambda point: _point_row(asked, point), csv="ratings"
                ),
            )
        )
        spans = [one for one in lines_of(document, "champions") if one["population"] == name]
        if strip := champions(spans, rated, on_page):
            chart = Chart(kind="vega", label="Champions over time", data=strip)
            blocks.append(Block(heading=f"Champions of {name}", chart=chart))
    return Content(title="Ratings", blocks=[*blocks, _champions(asked)])


def _point_row(asked: Asked, point: Line) -> Row:
    return Row(
        cells=[
            asked.player(point["player"]),
            cell(point["agent_steps"]),
            cell(point["rating"]),
            cell(interval(point)),
            cell(point["generation"]),
            cell(point["cause"]),
            moment(point["time"]),
        ]
    )


def _champions(asked: Asked) -> Block:
    lines = lines_of(asked.documents["ratings"], "champions")
    rows = [
        Row(
            cells=[
                cell(line["population"]),
                asked.player(line["player"]),
                moment(line["since"]),
                moment(line["until"]) if line["until"] else cell("now"),
            ]
        )
        for line in reversed(lines)
    ]
    if not rows:
        return Block(heading="Champions", note="No player has led yet.")
    columns = ["population", "champion", "since", "until"]
    table = Table(columns=columns, rows=rows[:100], total=len(rows))
    return Block(heading="Champions, the newest first", table=table)
