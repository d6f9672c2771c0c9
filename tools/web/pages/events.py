"""Events with filters, each with a permanent link.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from ..content import Block, Cell, Content, Filter, Row, cell, moment, shown
from .asked import Asked, Line, lines_of

ROUTINE = ("train_assigned", "evaluation_assigned", "start_assigned", "ratings_fitted")
"""Kinds that are most of the events, and no decisions about players: only by their filter."""

COLUMNS = ("time", "kind", "about", "what happened")
MAX_SENTENCE = 1000
"""Characters of a sentence; only hostile ones are longer."""


def events(asked: Asked) -> Content:
    """Return the events that the filters leave, the newest first."""
    every = lines_of(asked.documents["events"], "events")
    kind, player, since = (asked.query.get(key, "") for key in ("kind", "player", "since"))
    event = asked.query.get("event")
    chosen = [
        line
        for line in reversed(every)
        if (str(line["sequence"]) == event if event else _is_chosen(line, kind, player, since))
    ]
    kinds = sorted({str(line["kind"]) for line in every})
    hidden = "" if kind else " Assignments and fits are shown when their kind is chosen."
    return Content(
        title="Events",
        filters=[
            Filter(name="kind", label="Kind", value=kind, choices=kinds),
            Filter(name="player", label="Player", value=player),
            Filter(name="since", label="Since (UTC, 2026-01-31T12:00)", value=since),
        ],
        blocks=[
            Block(
                heading="Events, the newest first",
                note=f"{len(chosen):,} of {len(every):,}.{hidden}",
                table=asked.part(
                    COLUMNS, chosen, lambda line: event_row(asked, line), csv="events"
                ),
            )
        ],
    )


def _is_chosen(line: Line, kind: str, player: str, since: str) -> bool:
    if line["kind"] != kind if kind else line["kind"] in ROUTINE:
        return False
    return (not player or concerns(line, player)) and (not since or str(line["time"]) >= since)


def concerns(line: Line, player: str) -> bool:
    """Return whether an event is about a policy or one of its ghosts."""
    return any(
        isinstance(value, str)
        and (value == player or value.startswith((f"{player}@", f"{player}#")))
        for key, value in line.items()
        if key not in ("kind", "time", "reason")
    )


def event_row(asked: Asked, line: Line) -> Row:
    """Return an event as a row with a permanent link to itself."""
    sequence = str(line["sequence"])
    anchor = f"event-{sequence}"
    here = asked.links.page("events", anchor=anchor, event=sequence)
    return Row(
        anchor=anchor,
        cells=[
            moment(line["time"]),
            # Parts of an export stay as they are; those of a server go on.
            Cell(text=shown(line["kind"]), href=f"#{anchor}" if asked.links.is_static else here),
            asked.player(line["subject"]) if line["subject"] else cell(None),
            Cell(text=shown(line["sentence"], most=MAX_SENTENCE)),
        ],
    )
