"""Views of a run itself: its state, and what its learners do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from populations.views.notices import alert_lines, anchor_text, unproven_lines
from populations.views.parts import (
    Column,
    Document,
    Kind,
    Line,
    Pairs,
    Room,
    Row,
    Section,
    Table,
    player,
    said,
)

if TYPE_CHECKING:
    pass

COUNTS = (
    *("agent_steps", "matches", "assignments_finished", "checkpoints", "ghosts", "exploits"),
    "agent_steps_per_s",
)
NESTED = ("alerts", "champion", "learners", "learners_waiting")
TITLES = {"elapsed_s": "elapsed", "exploits": "copies"}
"""Words for figures whose keys are others."""


def title_of(key: str) -> str:
    """Return the words for a figure, by its key in documents."""
    return TITLES.get(key, key.replace("_", " "))


def status_rows(document: Document) -> list[Row]:
    """Return a row for each figure."""
    lines = alert_lines(document)
    shown = {**document, "alerts": "  ".join(lines) or None}
    return [{"key": key, "value": value} for key, value in shown.items() if key != "schema"]


def status(document: Document, room: Room) -> Iterator[Section]:
    """Yield the state as pairs; alerts first, because they ask for something."""
    if alerts := alert_lines(document):
        yield Section(below=[said(text, most_lines=4) for text in alerts], is_alert=True)
    yield Section(body=Pairs([*_figures(document, room)]))


def _figures(document: Document, room: Room) -> Iterator[tuple[str, Line]]:
    for key, value in document.items():
        if key in ("schema", *NESTED) or value in (None, [], {}):
            continue
        kind: Kind = "value"
        if key == "elapsed_s":
            kind = "duration"
        elif key in COUNTS and isinstance(value, int | float):
            kind = "count"
        elif key == "quarantined":
            kind = "players"
        elif isinstance(value, Mapping):
            kind = "listed"
        yield title_of(key), Line(f"{{value:{kind}}}", {"value": value})
    for name, best in document.get("champion", {}).items():
        between = ", 95% {rating:interval}" if best.get("rating_low") is not None else ""
        # Names of populations only where there are several.
        of = f" of {name}" if len(room.populations) > 1 else ""
        yield f"champion{of}", Line("{player:player}, rating {rating:elo}" + between, best)
        if score := anchor_text(best.get("anchor")):
            yield "", said(score)
        for line in unproven_lines([best["unproven"]]):
            yield "", said(line.strip())
    if waiting := document.get("learners_waiting"):
        yield "learners waiting", Line("{n} for a place to run", {"n": waiting})
    for row in document.get("learners", ()):
        rest = {key: row[key] for key in row if key != "learner" and row[key] is not None}
        yield f"learner {row.get('learner') or '-'}", Line("{rest:listed}", {"rest": rest})


LEARNERS = (
    player("learner"),
    Column("state", "word", is_label=True),
    Column("agent_steps_per_s", "count", "steps/s"),
    Column("mean_agent_steps_per_s", "count", "mean/s"),
    Column("share_training", "percent", "trains", is_label=True),
    Column("share_evaluation", "percent", "evaluates", is_label=True),
    Column("share_waiting", "percent", "waits", is_label=True),
    Column("restarts", drop=1),
    Column("host", "word", drop=2),
    Column("device", "word", drop=3),
    # Only learners of a run that others can join have one.
    Column("group", drop=3),
    Column("assignments", "count", drop=4),
    Column("matches", "count", drop=5),
)


def learners(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table of learners, and a line for each about its work and its faults."""
    rows = document["learners"]
    if waiting := document.get("learners_waiting"):
        more = "{n} more wait for a place to run: the cluster has no room for them"
        yield Section(below=[Line(more, {"n": waiting})])
    if not rows:
        yield Section(below=[Line("no learner has joined yet")])
        return
    yield Section(
        title=Line("learners, run is {state}", document),
        body=Table(LEARNERS, rows),
        below=[line for row in rows if (line := _work(row))],
    )


def _work(row: Row) -> Line | None:
    """Return what a learner does, waits for, or why it went away, and its last fault."""
    parts: list[str] = []
    if row.get("doing"):
        policies = " {policies:players}" if row.get("policies") else ""
        # Steps so far; an evaluation counts those of its matches.
        is_counted = isinstance(row.get("progress"), int | float)
        done = ", {progress:count} steps so far" if is_counted else ""
        since = ", since {since:time} UTC" if row.get("since") else ""
        parts.append("{doing}" + policies + done + since)
    if row.get("waits_for"):
        parts.append("waits for {waits_for:sentence}")
    if row.get("left") is not None:
        parts.append("went away at {left:time} UTC: {left_reason}")
    if faults := (row.get("faults") or ()):
        parts.append("{num_faults} faults, the last: {last_fault}")
        row = {**row, "num_faults": len(faults), "last_fault": faults[-1]}
    return Line("{learner:player}: " + "; ".join(parts), row) if parts else None
