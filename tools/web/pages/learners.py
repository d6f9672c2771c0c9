"""Learners: how fast they are, what they do, and what they wait for.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ..content import Block, Content, Row, Table, cell, moment, shown
from .asked import Asked, Line, lines_of, number

COLUMNS = (
    *("learner", "state", "does", "waits for", "steps/s now", "steps/s mean", "training"),
    *("evaluation", "waiting", "assignments", "restarts", "group", "joined", "left"),
)


def learners(asked: Asked) -> Content:
    """Return all learners that have taken part, and their faults."""
    none = Block(heading="Learners", note="No learner has joined yet.")
    blocks = [*learner_blocks(asked), *_faults(asked)]
    return Content(title="Learners", blocks=blocks or [none])


def learner_blocks(asked: Asked) -> Iterator[Block]:
    """Yield learners as a table, if there are any."""
    lines = lines_of(asked.documents["learners"], "learners")
    if lines:
        table = asked.part(COLUMNS, lines, _row, csv="learners")
        yield Block(heading="Learners", table=table)


def _row(line: Line) -> Row:
    shares = (number(line[f"share_{key}"]) for key in ("training", "evaluation", "waiting"))
    return Row(
        cells=[
            *(cell(line[key]) for key in ("learner", "state", "doing", "waits_for")),
            *(cell(line[key]) for key in ("agent_steps_per_s", "mean_agent_steps_per_s")),
            *(cell(None if share is None else f"{share:.1%}") for share in shares),
            *(cell(line[key]) for key in ("assignments", "restarts", "group")),
            moment(line["joined"]),
            moment(line["left"]),
        ]
    )


def _faults(asked: Asked) -> Iterator[Block]:
    rows = [
        Row(cells=[cell(line["learner"]), cell(_text(fault))])
        for line in lines_of(asked.documents["learners"], "learners")
        for fault in cast("list[object]", line["faults"])
    ]
    if rows:
        columns = ["learner", "fault"]
        yield Block(heading="Faults", table=Table(columns=columns, rows=rows, total=len(rows)))


def _text(fault: object) -> str:
    if not isinstance(fault, dict):
        return shown(str(fault))
    return ", ".join(f"{shown(key)} {shown(str(value))}" for key, value in fault.items())
