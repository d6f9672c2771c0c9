"""Metrics of many policies over their training: a part of the page for each group of names.

Tests: `tests/tools/web/test_metrics.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from arena.metrics.names import TRAFFIC_METRICS, TRAINING_METRICS

from ...plots.kinds import DEFAULT_METRICS
from ..content import Block, Cell, Chart, Content, Row, Table, cell, part, shown
from .asked import Asked, Line, best_policies, lines_of, number, standing_lines
from .ratings import MAX_LINES, thinned

MAX_CHARTS = 24
"""Charts of one part."""

MAX_OTHERS = 100
"""Policies that are grey lines, beside those that can be told apart."""

MAX_OTHER_POINTS = 40
"""Points of a grey line."""

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
    found: dict[str, list[Line]] = {}
    for line in lines:
        value = number(line.get(name))
        # Neither is a number that JSON has.
        if value is not None and math.isfinite(value):
            point = {"x": line["agent_steps"], "y": float(f"{value:.6g}")}
            found.setdefault(str(line["policy"]), []).append(point)
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
    series = [
        {
            "name": "the run" if policy == RUN else asked.short(policy),
            "x": [point["x"] for point in kept],
            "y": [point["y"] for point in kept],
        }
        for policy, points in itertools.islice(curves.items(), MAX_LINES)
        for kept in [thinned(points)]
    ]
    others = list(itertools.islice(curves.values(), MAX_LINES, MAX_LINES + MAX_OTHERS))
    data: dict[str, object] = {"x": "agent steps", "y": shown(name), "series": series}
    if others:
        points = list(_joined(others))
        data["others"] = {
            "name": f"{len(others)} others",
            "x": [point["x"] for point in points],
            "y": [point["y"] for point in points],
        }
    return Chart(
        kind="lines",
        label=f"{shown(name)} over agent steps, one line per policy; the table has the figures",
        data=data,
    )


def _joined(curves: Sequence[Sequence[Line]]) -> Iterator[Line]:
    """Yield the points of several lines as one with gaps."""
    for points in curves:
        yield from thinned(points, most=MAX_OTHER_POINTS)
        yield {"x": None, "y": None}
