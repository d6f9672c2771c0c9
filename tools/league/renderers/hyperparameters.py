"""Hyperparameters of each policy, and what changed last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, clock, steps, text_of
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType

LAST = 5
"""Changes that are told."""


def hyperparameters(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a table of the current values, and lines about the last changes."""
    from rich.text import Text

    rows = rows_of(document)
    keys = dict.fromkeys(key for row in rows for key in row if key != "policy")
    columns = [
        label("policy", look),
        # The last ones are left out first.
        *(Column(key=key, show=_number, drop=place) for place, key in enumerate(keys, 1)),
    ]
    yield from table(rows, columns, look, title="hyperparameters now")
    changes = [
        event
        for event in cast("Sequence[Row]", document.get("changes", ()))
        if event.get("new") is not None and event.get("old") is not None
    ]
    if changes:
        yield Text("last changes (times UTC)", style="bold")
    for event in changes[-LAST:]:
        yield Text(_change(event, look))
    if len(changes) > LAST:
        yield Text(f"{len(changes) - LAST} earlier changes hidden (events --kind explored ...)")


def rows_of(document: Document) -> list[Row]:
    """Return a row per policy: its values, and factors of schedules."""
    policies = cast("Mapping[str, Row]", document["policies"])
    factors = cast("Mapping[str, Row]", document.get("factors", {}))
    return [
        {
            "policy": name,
            **values,
            **{f"{key}_factor": factor for key, factor in factors.get(name, {}).items()},
        }
        for name, values in policies.items()
    ]


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _change(event: Row, look: Look) -> str:
    old, new = cast("Row", event["old"]), cast("Row", event["new"])
    arrow = "->" if look.is_ascii else "→"
    differences = [
        f"{key} {_number(old.get(key))} {arrow} {_number(value)}"
        for key, value in new.items()
        if old.get(key) != value
    ]
    donor = f" {look.name(event['donor'])}" if event.get("donor") else ""
    at = f" at {steps(event['agent_steps'])}" if event.get("agent_steps") is not None else ""
    return (
        f"{clock(event['time'])} {look.name(event['subject'])} {event['kind']}{donor}{at}: "
        f"{', '.join(differences) or 'nothing'}"
    )
