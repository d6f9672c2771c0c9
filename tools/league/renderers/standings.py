"""Standings: rating with interval and record of each player, the best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, interval, share, steps, whole
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType


MARK = "*"
"""Character beside the champion."""


def without_twins(document: Document) -> Document:
    """Return standings in which a policy and its ghost with the same weights are one row."""
    populations = cast("Mapping[str, Sequence[Row]]", document["populations"])
    shown = {
        name: [line for line in lines if line["same_as"] is None]
        for name, lines in populations.items()
    }
    return {**document, "populations": shown}


def standings(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a table per population."""
    from rich.text import Text

    for name, lines in cast("Mapping[str, Sequence[Row]]", document["populations"]).items():
        rows = [_row(line) for line in lines]
        yield from table(rows, _columns(look), look, title=f"standings of {name}")
        if any(row["champion"] for row in rows):
            yield Text(f"{MARK} champion")
        if rows and all(row["rating"] is None for row in rows):
            yield Text("no ratings yet: they begin with the first fit of evaluation matches")


def _columns(look: Look) -> list[Column]:
    return [
        label("player", look),
        # A title of one blank: it stands behind the name.
        Column(key="mark", title=" ", show=_or_blank, is_right=False),
        Column(key="rating", show=whole),
        Column(key="95%"),
        Column(key="ranks"),
        Column(key="matches", show=steps),
        Column(key="score", show=share),
        Column(key="generation", title="gen"),
        Column(key="agent_steps", title="steps", show=steps),
        label("parent", look, drop=1),
        Column(key="state", drop=2, is_right=False),
        # Only where somebody is no main policy; what a rating means depends on it then.
        Column(key="role", is_right=False),
        Column(key="exploitability", drop=3),
        Column(key="wins", show=steps, drop=5),
        Column(key="draws", show=steps, drop=6),
        Column(key="losses", show=steps, drop=7),
        Column(key="mean_return", title="return", show=share, drop=4),
    ]


def _or_blank(value: object) -> str:
    return "" if value is None else str(value)


def _row(line: Row) -> Row:
    low, high = line.get("rank_low"), line.get("rank_high")
    ranks = None if low is None else f"{low}" if low == high else f"{low}..{high}"
    return {
        **line,
        "95%": interval(line),
        "ranks": ranks,
        "mark": MARK if line["champion"] else None,
        # States and roles that most players have say nothing.
        "state": None if line.get("state") in ("active", None) else line["state"],
        "role": None if line.get("role") in ("main", None) else line["role"],
    }
