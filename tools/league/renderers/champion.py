"""Champions: since when, by how much, by which line of copies, and against whom they lose most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from ...notices import anchor_text, unproven_lines
from .look import Document, Look, Row, clock, interval, share, signed, steps, whole
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType

CAUSES = {"exploit": "copy", "explore": "change"}
"""Words for causes of generations."""

OPPONENTS = 10
"""Opponents of a champion that are shown."""


def champion(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield lines and a table of results for each champion."""
    from rich.text import Text

    champions = cast("Sequence[Row]", document["champions"])
    if not champions:
        yield Text("no champion yet: there is one after the first fit of evaluation matches")
    for one in champions:
        yield from _one(one, look)


def _one(one: Row, look: Look) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(
        f"champion of {one['population']}: {look.name(one['player'])}, "
        f"{whole(one['rating'])} Elo, 95% {interval(one) or '-'}, "
        f"{steps(one['agent_steps'])} agent steps",
        style="bold",
    )
    if score := anchor_text(one.get("anchor")):
        yield Text(score)
    for told in unproven_lines([one["unproven"]]):
        yield Text(told)
    changes = cast("int", one.get("changes") or 0)
    # A rewind, which is made while nothing runs, may have left it the lead.
    since = f" since {clock(one['since'])} UTC" if one["since"] is not None else ""
    yield Text(f"leads{since}, after {changes} changes of the lead")
    if one.get("next") is not None:
        between = f", 95% {signed(one['lead_low'])}..{signed(one['lead_high'])}"
        yield Text(
            f"next: {look.name(one['next'])}, {whole(one['lead'])} Elo behind"
            + (between if one.get("lead_low") is not None else "")
        )
    line = cast("Sequence[Row]", one.get("line", ()))
    if line:
        arrow = " > " if look.is_ascii else " → "
        parts = [
            f"{look.name(part['policy'])} "
            f"({CAUSES.get(str(part['cause']), part['cause'])} at {steps(part['begin'])})"
            for part in line
        ]
        yield Text(f"its line of weights: {arrow.join(parts)}")
    opponents = cast("Sequence[Row]", one["opponents"])
    shown = opponents if look.is_wide else opponents[: look.limit or OPPONENTS]
    rows = [
        {
            **row,
            "95%": None
            if row.get("score_low") is None
            else f"{share(row['score_low'])}..{share(row['score_high'])}",
        }
        for row in shown
    ]
    columns = [
        label("opponent", look),
        Column(key="matches", show=steps),
        Column(key="score", show=share, is_label=True),
        Column(key="95%"),
        Column(key="wins", show=steps, drop=1),
        Column(key="draws", show=steps, drop=2),
        Column(key="losses", show=steps, drop=3),
    ]
    yield from table(rows, columns, look, title="results, the worst score first")
    if hidden := len(opponents) - len(shown):
        yield Text(f"{hidden} more opponents hidden (--wide shows all)")
