"""Life of one policy or ghost: each thing that happened to it as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, clock, steps, text_of
from .tables import Column, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def why(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield what the player is, and what happened to it, oldest first."""
    title = (
        f"{look.name(document['player'])}: {document['kind']}, role {document['role']}, "
        f"{document['state']}, generation {document['generation']}, "
        f"{steps(document['agent_steps'])} agent steps"
    )
    rows = [
        {**row, "sentence": look.names(text_of(row["sentence"]))}
        for row in cast("Sequence[Row]", document["entries"])
    ]
    columns = [
        Column(key="time", title="UTC", show=clock, is_label=True),
        Column(key="agent_steps", title="steps", show=steps, is_label=True),
        Column(key="generation", title="gen", is_label=True),
        Column(key="sentence", title="what happened", is_text=True),
    ]
    yield from table(rows, columns, look, title=title)
