"""Nash mixture of each population, and how cyclic its results are.

Tests: `tests/tools/web/test_mixture.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from populations.views import charts

from ...show.labels import reader
from ..content import Block, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, interval, lines_of, number

COLUMNS = ("player", "kind", "probability", "rating", "95%", "agent steps")


def mixture(asked: Asked) -> Content:
    """Return the members of each mixture with their probabilities."""
    document = asked.documents["mixture"]
    members = lines_of(document, "mixture")
    blocks = []
    for name, line in cast("Mapping[str, Line]", document["populations"]).items():
        own = [member for member in members if member["population"] == name]
        blocks.append(
            Block(
                heading=f"Mixture of {shown(name)}",
                note=_note(line, reason=None if own else document["reason"]),
                chart=_chart(asked, own) if own else None,
                table=_table(asked, own) if own else None,
            )
        )
    return Content(title="Mixture", blocks=blocks)


def _note(line: Line, *, reason: object) -> str:
    cyclicity, worst = number(line["cyclicity"]), number(line["worst_score"])
    told = []
    if cyclicity is not None:
        told.append(f"Cyclicity {cyclicity:.2f}: that share of the results no rating can express.")
    if worst is not None:
        told.append(
            f"The Nash mixture of {shown(line['num_players'])} frozen players: one of these is "
            f"drawn for each episode, with these probabilities. Its expected score is {worst:.3f} "
            "against the strongest of them all. arena export --mixture writes it."
        )
    if reason is not None:
        told.append(shown(reason))
    return " ".join(told)


def _table(asked: Asked, members: Sequence[Line]) -> Table:
    return asked.part(
        COLUMNS,
        members,
        lambda line: Row(
            cells=[
                asked.player(line["player"]),
                cell(line["kind"]),
                cell(line["probability"]),
                cell(line["rating"]),
                cell(interval(line)),
                cell(line["agent_steps"]),
            ]
        ),
        csv="mixture",
    )


def _chart(asked: Asked, members: Sequence[Line]) -> Chart:
    return Chart(
        kind="vega",
        label="Probability of each member, the most probable first; the table has the figures",
        data=charts.mixture(members, reader(asked.populations, asked.links.player)),
    )
