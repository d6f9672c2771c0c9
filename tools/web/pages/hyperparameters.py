"""Hyperparameters of all policies: now, and over their training.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from populations.views import curves

from ...show.labels import reader
from ..content import Block, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, best_policies, lines_of, standing_lines, with_ends
from .ratings import MAX_LINES

MAX_AXES = 12
"""Charts of a population."""


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
        blocks += [_schedule(asked, name, key, own, lives) for key in keys[:MAX_AXES]]
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

    def row(line: Line) -> Row:
        values = now[str(line["player"])]
        shown_values = (cell(values.get(key)) for key in keys)
        return Row(cells=[asked.player(line["player"]), cell(line["rating"]), *shown_values])

    return Block(
        heading=heading,
        note="Those of each policy, now. What all have alike is left out.",
        table=asked.part(
            ["player", "rating", *map(shown, keys)],
            [line for line in lines if line["player"] in now],
            row,
            csv="hyperparameters",
        ),
    )


def _schedule(asked: Asked, name: str, key: str, own: list[Line], lives: list[Line]) -> Block:
    """Return a hyperparameter over the agent steps of each policy."""
    spaces = cast("Mapping[str, Line]", asked.documents["hyperparameters"]["search_space"])
    space = cast("Mapping[str, Line]", spaces.get(name, {}))
    rows = []
    for line in lives:
        columns = ("generation", "agent_steps_begin", "agent_steps_end", "cause")
        value = cast("Line", line["hyperparameters"]).get(key)
        rows.append(
            Row(
                cells=[
                    asked.player(line["policy"]),
                    *(cell(line[column]) for column in columns),
                    cell(value),
                ]
            )
        )
    headings = ["player", "generation", "begins at", "ends at", "cause", shown(key)]
    return Block(
        heading=f"{name}: {shown(key)}",
        chart=Chart(
            kind="vega",
            label=f"{shown(key)} over agent steps, one line per policy; the table has the figures",
            data=curves.schedule(
                *(key, own, reader(asked.populations, asked.links.player)),
                best_first=best_policies(asked, name),
                space=space.get(key, {}),
            ),
        ),
        table=Table(columns=headings, rows=rows, total=len(rows)),
    )
