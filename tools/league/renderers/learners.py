"""Learners: what each does, what it waits for, how fast it is, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, clock, steps, text_of
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def learners(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a table of learners, and a line for each about its work and its faults."""
    from rich.text import Text

    rows = cast("Sequence[Row]", document["learners"])
    if waiting := document.get("learners_waiting"):
        yield Text(f"{waiting} more wait for a place to run: the cluster has no room for them")
    if not rows:
        yield Text("no learner has joined yet")
        return
    columns = [
        label("learner", look),
        Column(key="state", is_right=False, is_label=True),
        Column(key="agent_steps_per_s", title="steps/s", show=steps),
        Column(key="mean_agent_steps_per_s", title="mean/s", show=steps),
        Column(key="share_training", title="trains", show=_percent, is_label=True),
        Column(key="share_evaluation", title="evaluates", show=_percent, is_label=True),
        Column(key="share_waiting", title="waits", show=_percent, is_label=True),
        Column(key="restarts", drop=1),
        Column(key="host", drop=2, is_right=False),
        Column(key="device", drop=3, is_right=False),
        # Only learners of a run that others can join have one.
        *([Column(key="group", drop=3)] if any(row.get("group") for row in rows) else []),
        Column(key="assignments", show=steps, drop=4),
        Column(key="matches", show=steps, drop=5),
    ]
    yield from table(rows, columns, look, title=f"learners, run is {document['state']}")
    for row in rows:
        if said := _work(row, look):
            yield Text(f"{look.name(row['learner'])}: {said}")


def _work(row: Row, look: Look) -> str:
    """Return what a learner does, waits for, or why it went away, and its last fault."""
    parts: list[str] = []
    if row.get("doing"):
        policies = ", ".join(map(look.name, cast("Sequence[str]", row.get("policies") or ())))
        progress = row.get("progress")
        # Steps so far; an evaluation counts those of its matches.
        done = f", {steps(progress)} steps so far" if isinstance(progress, int | float) else ""
        since = f", since {clock(row['since'])} UTC" if row.get("since") else ""
        parts.append(f"{text_of(row['doing'])} {policies}".strip() + done + since)
    if row.get("waits_for"):
        parts.append(f"waits for {look.names(text_of(row['waits_for']))}")
    if row.get("left") is not None:
        parts.append(f"went away at {clock(row['left'])} UTC: {text_of(row.get('left_reason'))}")
    faults = cast("Sequence[object]", row.get("faults") or ())
    if faults:
        parts.append(f"{len(faults)} faults, the last: {text_of(faults[-1])}")
    return "; ".join(parts)


def _percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else "-"
