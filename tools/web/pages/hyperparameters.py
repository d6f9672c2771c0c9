"""Hyperparameters of all policies: now, and over their training.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ..content import Block, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, best_policies, lines_of, number, standing_lines, with_ends
from .ratings import MAX_LINES

MAX_AXES = 12
MAX_POLICIES = 100
"""Lines of the parallel coordinates."""

LOG_RATIO = 20.0
"""Ratio of an axis' ends from which on it is logarithmic."""


def hyperparameters(asked: Asked) -> Content:
    """Return parallel coordinates and schedules of what differs between policies or in time."""
    document = asked.documents["hyperparameters"]
    now = cast("Mapping[str, Line]", document["policies"])
    generations = with_ends(lines_of(document, "generations"), asked.documents["standings"])
    blocks: list[Block] = []
    for name in standing_lines(asked.documents["standings"]):
        best = [policy for policy in best_policies(asked, name) if policy in now]
        own = [line for line in generations if line["population"] == name]
        keys = _varied(now, best, own)
        blocks.append(_now(asked, name, now, best, keys))
        chosen = set(best[:MAX_LINES])
        lives = [line for line in own if line["policy"] in chosen]
        blocks += [_schedule(asked, name, key, lives) for key in keys[:MAX_AXES]]
    return Content(title="Hyperparameters", blocks=blocks)


def _varied(
    now: Mapping[str, Line], policies: Sequence[str], generations: Sequence[Line]
) -> list[str]:
    """Return the hyperparameters that any two policies or generations have differently."""
    every = [now[policy] for policy in policies]
    every += [cast("Line", line["hyperparameters"]) for line in generations]
    keys = dict.fromkeys(key for values in every for key in values)
    return [key for key in keys if len({str(values.get(key)) for values in every}) > 1]


def _now(
    asked: Asked, name: str, now: Mapping[str, Line], best: list[str], keys: list[str]
) -> Block:
    heading = f"Hyperparameters of {name}"
    if not keys:
        values = now[best[0]] if best else {}
        same = ", ".join(f"{shown(key)} {shown(value)}" for key, value in values.items())
        return Block(heading=heading, note=f"All policies have the same: {same}.")
    lines = standing_lines(asked.documents["standings"])[name]
    ratings = {str(line["player"]): number(line["rating"]) for line in lines}

    def row(line: Line) -> Row:
        values = now[str(line["player"])]
        shown_values = (cell(values.get(key)) for key in keys)
        return Row(cells=[asked.player(line["player"]), cell(line["rating"]), *shown_values])

    return Block(
        heading=heading,
        note="One line per policy, now: blue are the best rated, orange the worst. What all have "
        "alike is left out.",
        chart=_parallel(asked, best[:MAX_POLICIES], now, keys[:MAX_AXES], ratings),
        table=asked.part(
            ["player", "rating", *map(shown, keys)],
            [line for line in lines if line["player"] in now],
            row,
            csv="hyperparameters",
        ),
    )


def _parallel(
    asked: Asked,
    policies: list[str],
    now: Mapping[str, Line],
    keys: list[str],
    ratings: Mapping[str, float | None],
) -> Chart:
    axes = []
    columns: list[list[float | None]] = []
    for key in keys:
        column = [number(now[policy].get(key)) for policy in policies]
        known = [value for value in column if value is not None]
        if known:
            low, high = min(known), max(known)
            is_log = low > 0.0 and high / low > LOG_RATIO
            axes.append({"name": shown(key), "low": low, "high": high, "log": is_log})
            columns.append(column)
    return Chart(
        kind="parallel",
        label="Hyperparameters of each policy; the table has the figures",
        data={
            "axes": axes,
            "lines": [
                {
                    "values": [column[index] for column in columns],
                    "rating": ratings.get(policy),
                    "href": asked.links.player(policy),
                    "text": asked.short(policy),
                }
                for index, policy in enumerate(policies)
            ],
        },
    )


def _schedule(asked: Asked, name: str, key: str, lives: list[Line]) -> Block:
    """Return a hyperparameter over the agent steps of each policy."""
    series: dict[str, dict[str, list[object]]] = {}
    rows = []
    for line in lives:
        value = cast("Line", line["hyperparameters"]).get(key)
        policy = asked.short(line["policy"])
        one = series.setdefault(policy, {"x": [], "y": [], "texts": []})
        # Both ends: the last generation has no successor that would end its line.
        for end in ("agent_steps_begin", "agent_steps_end"):
            one["x"].append(line[end])
            one["y"].append(value)
            one["texts"].append(f"generation {line['generation']}, {shown(line['cause'])}")
        columns = ("generation", "agent_steps_begin", "agent_steps_end", "cause")
        rows.append(
            Row(
                cells=[
                    asked.player(line["policy"]),
                    *(cell(line[column]) for column in columns),
                    cell(value),
                ]
            )
        )
    values = [v for one in series.values() for v in map(number, one["y"]) if v is not None]
    is_log = bool(values) and min(values) > 0.0 and max(values) / min(values) > LOG_RATIO
    headings = ["player", "generation", "begins at", "ends at", "cause", shown(key)]
    return Block(
        heading=f"{name}: {shown(key)}",
        chart=Chart(
            kind="lines",
            label=f"{shown(key)} over agent steps, one line per policy; the table has the figures",
            data={
                "x": "agent steps",
                "y": shown(key),
                "log": is_log,
                "series": [{"name": policy, **one} for policy, one in series.items()],
            },
        ),
        table=Table(columns=headings, rows=rows, total=len(rows)),
    )
