"""Metrics of many policies over their training: a part of the page for each group of names.

Tests: `tests/tools/web/test_metrics.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

from arena.metrics.names import TRAFFIC_METRICS, TRAINING_METRICS
from populations.views.curves import DEFAULT_METRICS, metric, metric_points

from ...show.labels import reader
from ..content import Block, Cell, Chart, Content, Row, Table, cell, part, shown
from .asked import Asked, Line, best_policies, lines_of, number, standing_lines
from .ratings import MAX_LINES

MAX_CHARTS = 24
"""Charts of one part."""

MAX_OTHERS = 100
"""Policies that are grey lines, beside those that can be told apart."""

RUN = "run"
"""Name in the place of a policy in lines about the run."""

FIRST = "training"
"""Title of the first part: what tells how training goes."""

NONE = (
    "There are no metrics: they are read from metrics.jsonl, which is written where metrics.sinks "
    "names jsonl."
)
COLUMNS = ("player", "points", "last at", "latest", "lowest", "highest")

Curves = Mapping[str, Sequence[Line]]
"""Points of a metric, with ``x`` and ``y``, by policy."""


def metrics(asked: Asked) -> Content:
    """Return the charts of a group of metrics; each policy's last and extreme figures below."""
    document = asked.documents["metrics"]
    lines = lines_of(document, "metrics")
    groups = groups_of(lines)
    left_out = []
    if num_bad := document.get("left_out"):
        note = f"Lines of metrics.jsonl that cannot be read: {num_bad}."
        left_out.append(Block(heading="Left out", note=note))
    if not groups:
        blocks = [Block(heading="Metrics", note=NONE), *left_out]
        return Content(title="Metrics", blocks=blocks)
    titles = list(groups)
    title = titles[min(asked.number, len(titles)) - 1]
    order = _order(asked, lines)
    names = groups[title]
    return Content(
        title="Metrics",
        blocks=[
            *left_out,
            *(
                block
                for name in names[:MAX_CHARTS]
                for block in part(shown(name), partial(_block, asked, name, lines, order))
            ),
        ],
        parts={
            shown(one): asked.links.page(asked.page, number=index)
            for index, one in enumerate(titles, 1)
        },
        part=shown(title),
    )


def groups_of(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Return the names of metrics by their groups, sorted; before them what is telling."""
    found = {name for line in lines for name in line} - {"policy", "agent_steps"}
    telling = [name for name in DEFAULT_METRICS if name in found]
    groups = {FIRST: telling} if telling else {}
    for group, names in itertools.groupby(sorted(found), key=lambda name: name.split("/")[0]):
        groups.setdefault(f"{group}/", []).extend(names)
    return groups


def _order(asked: Asked, lines: Sequence[Line]) -> list[str]:
    """Return all policies with metrics: the run, the best of each population by turns, others."""
    best = [best_policies(asked, name) for name in standing_lines(asked.documents["standings"])]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*best))
    known = dict.fromkeys(str(line["policy"]) for line in lines)
    ranked = [policy for policy in turns if policy in known]
    return list(dict.fromkeys([*(one for one in (RUN,) if one in known), *ranked, *known]))


def _curves(lines: Sequence[Line], name: str, order: Sequence[str]) -> Curves:
    found = metric_points(lines, name)
    return {policy: found[policy] for policy in order if policy in found}


def _block(asked: Asked, name: str, lines: Sequence[Line], order: Sequence[str]) -> Block:
    curves = _curves(lines, name, order)
    rows = [_row(asked, policy, points) for policy, points in curves.items()]
    return Block(
        heading=shown(name),
        note={**TRAINING_METRICS, **TRAFFIC_METRICS}.get(name, "").replace("`", ""),
        chart=_chart(asked, name, curves),
        table=Table(
            columns=COLUMNS,
            rows=rows[: MAX_LINES + MAX_OTHERS],
            total=len(rows),
            csv=f"{asked.links.base}metrics.csv",
        ),
    )


def _row(asked: Asked, policy: str, points: Sequence[Line]) -> Row:
    values = [number(point["y"]) or 0.0 for point in points]
    figures = (values[-1], min(values), max(values))
    return Row(
        cells=[
            Cell(text="the run") if policy == RUN else asked.player(policy),
            cell(len(points)),
            cell(points[-1]["x"]),
            *map(cell, figures),
        ]
    )


def _chart(asked: Asked, name: str, curves: Curves) -> Chart:
    return Chart(
        kind="vega",
        label=f"{shown(name)} over agent steps, one line per policy; the table has the figures",
        data=metric(name, curves, reader(asked.populations, asked.links.player)),
    )
