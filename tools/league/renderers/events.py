"""Events: each decision as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, clock, moment, text_of
from .tables import Column, table

if TYPE_CHECKING:
    from rich.console import RenderableType

FIXED = ("sequence", "time", "kind", "subject", "sentence")
MAX_DATUM = 60
"""Most characters of one datum of an event without a sentence."""

KIND_WIDTH = 100
"""Columns of a screen from which on kinds have a column."""


def events(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a table of events, oldest first."""
    rows = cast("Sequence[Row]", document["events"])
    dates = {f"{found:%Y-%m-%d}" for row in rows if (found := moment(row["time"]))}
    days = " to ".join(sorted({min(dates), max(dates)})) if dates else ""
    columns = [
        Column(key="sequence", title="#", is_label=True),
        Column(key="time", title="UTC", show=clock, is_label=True),
        *(
            [Column(key="kind", is_label=True, is_right=False)]
            if look.width >= KIND_WIDTH or look.is_wide
            else []
        ),
        Column(key="sentence", title="what happened", is_text=True),
    ]
    shown = [{**row, "sentence": sentence(row, look)} for row in rows]
    yield from table(shown, columns, look, title=f"events {days}".strip())


def sentence(row: Row, look: Look) -> str:
    """Return an event's sentence; without one its kind, its subject and its data."""
    if row.get("sentence"):
        return look.names(text_of(row["sentence"]))
    data = [f"{key}={look.cut(text_of(row[key]), MAX_DATUM)}" for key in row if key not in FIXED]
    subject = look.name(row["subject"]) if row["subject"] else ""
    # Below the kind's own column it need not be said.
    kind = "" if look.width >= KIND_WIDTH or look.is_wide else str(row["kind"])
    return "  ".join(part for part in (kind, subject, *data) if part)
