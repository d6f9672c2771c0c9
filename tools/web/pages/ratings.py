"""Ratings of policies over their training.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ...open_intervals import upper_ends
from ..content import Block, Chart, Content, Row, Table, cell, moment
from .asked import Asked, Line, best_policies, interval, lines_of, number, standing_lines

MAX_LINES = 16
"""Lines of one chart: more cannot be told apart."""

MAX_POINTS = 150
"""Points of one line: a screen shows no more."""


def thinned(points: Sequence[Line], *, most: int = MAX_POINTS) -> list[Line]:
    """Return about so many points, evenly, the last one among them."""
    step = -(-len(points) // most)
    kept = list(points[:: max(step, 1)])
    return kept if not points or kept[-1] is points[-1] else [*kept, points[-1]]


COLUMNS = ("player", "agent steps", "rating", "95%", "generation", "cause", "given out")


def ratings(asked: Asked) -> Content:
    """Return ratings of policies over their training, of one fit, and the champions."""
    document = asked.documents["ratings"]
    blocks = []
    for name, lines in standing_lines(document).items():
        by_player = {str(line["player"]): cast("list[Line]", line["points"]) for line in lines}
        best = [p for p in best_policies(asked, name) if by_player.get(p)][:MAX_LINES]
        points = [{**point, "player": one} for one in best for point in by_player[one]]
        blocks.append(
            Block(
                heading=f"Ratings of {name}",
                note=f"All points are of one fit, with 95% intervals. {len(best)} of "
                f"{len(lines):,} policies, the best now. A cross marks a copy of other weights.",
                chart=_curves(asked, {player: by_player[player] for player in best}),
                table=asked.part(
                    COLUMNS, points, lambda point: _point_row(asked, point), csv="ratings"
                ),
            )
        )
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


def _curves(asked: Asked, curves: Mapping[str, list[Line]]) -> Chart:
    series = []
    for player, points in curves.items():
        kept = thinned(points)
        begun = {point["generation"]: point for point in reversed(points)}
        series.append(
            {
                "name": asked.short(player),
                "x": [point["agent_steps"] for point in kept],
                "y": [_whole(point["rating"]) for point in kept],
                "low": [_whole(point["rating_low"]) for point in kept],
                "high": [_whole(end) for end in upper_ends(kept)],
                "marks": [
                    {
                        "x": point["agent_steps"],
                        "y": _whole(point["rating"]),
                        "text": f"{asked.short(player)}: generation {point['generation']}, a copy",
                    }
                    for point in begun.values()
                    if point["cause"] == "exploit"
                ],
            }
        )
    return Chart(
        kind="lines",
        label="Ratings over agent steps, one line per policy; the table has the figures",
        data={"x": "agent steps", "y": "rating in Elo", "series": series, **_range(curves)},
    )


def _range(curves: Mapping[str, list[Line]]) -> dict[str, list[float]]:
    """Return the ends of the axis where intervals are so wide that curves would be flat."""
    points = [point for own in curves.values() for point in own]
    known = {
        key: [value for point in points if (value := number(point[key])) is not None]
        for key in ("rating", "rating_low", "rating_high")
    }
    if not all(known.values()):
        return {}
    low, high = min(known["rating"]), max(known["rating"])
    # Intervals have as much room as the curves, above and below.
    ends = [low - (high - low), high + (high - low)]
    inner = [max(ends[0], min(known["rating_low"])), min(ends[1], max(known["rating_high"]))]
    is_wide = inner[0] == ends[0] or inner[1] == ends[1]
    return {"range": inner} if is_wide and low < high else {}


def _whole(value: object) -> float | None:
    found = number(value)
    return None if found is None else round(found, 1)


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
