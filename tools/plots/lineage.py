"""Lineage: a lane per policy over agent steps, coloured by rating, and copies between them.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from . import style
from .kinds import Documents
from .ratings import COPIES

LANE_INCHES = 0.135
COLOURS = "cividis_r"
BEST_LINE, OTHER_COPY = "#D55E00", "#8A8A8A"
MAX_TICKED = 16
"""Lanes up to which generations that are no copies have a tick."""

Points = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rated checkpoints of each policy, in the order of their training."""


def draw(documents: Documents) -> Figure:
    """Draw the lanes of each population, the best policy on top."""
    lineage, ratings = documents["lineage"], documents["ratings"]["populations"]
    points: Points = {
        line["player"]: line["points"] for lines in ratings.values() for line in lines
    }
    policies: dict[str, list[Mapping[str, Any]]] = {}
    for row in lineage["policies"]:
        policies.setdefault(row["policy"].split("/")[0], []).append(row)
    values = [point["rating"] for line in points.values() for point in line]
    norm = Normalize(min(values, default=0.0), max(values, default=1.0))
    heights = [LANE_INCHES * max(len(rows), 4) + 0.2 for rows in policies.values()]
    total = sum(heights) + 0.4 * len(heights) + 0.5
    figure = style.make_figure(style.WIDE_INCHES, total)
    axes = figure.subplots(len(policies), squeeze=False, height_ratios=heights)[:, 0]
    share = min(1.0, style.MAX_INCHES / total)
    for panel, (population, rows), height in zip(axes, policies.items(), heights, strict=True):
        ordered = sorted(rows, key=lambda row: _order(row["policy"], points))
        lines = _draw_lanes(panel, ordered, points, norm=norm)
        _draw_copies(panel, lineage, ordered)
        every = style.thinned(len(ordered), inches=height * share)
        chosen = range(0, len(ordered), every)
        names = [style.named(ordered[lane]["policy"], list(policies)) for lane in chosen]
        panel.set_yticks(chosen, names)
        if len(policies) > 1:
            panel.set_title(style.shortened(population))
    if values:
        style.add_bar(figure, lines, list(axes), "rating (Elo)")
    marks = [
        style.mark(">", "copy that the best policy goes back to", colour=BEST_LINE),
        style.mark(">", "other copy, from the donor to the copier", colour=OTHER_COPY),
    ]
    if any(len(rows) <= MAX_TICKED for rows in policies.values()):
        marks.append(style.mark("|", "other new generation", colour="#000000"))
    figure.legend(handles=marks, loc="outside lower left", ncols=3)
    return figure


def _order(policy: str, points: Points) -> tuple[float, str]:
    """Return the place of a policy: the best newest rating first, unrated ones last."""
    line = points.get(policy, ())
    return -line[-1]["rating"] if line else float("inf"), policy


def _draw_lanes(
    axes: Axes, ordered: Sequence[Mapping[str, Any]], points: Points, *, norm: Normalize
) -> LineCollection:
    segments, values = [], []
    for lane, row in enumerate(ordered):
        line = points.get(row["policy"], ())
        # Trained, but not rated yet.
        axes.plot([0, row["agent_steps"]], [lane, lane], color="#DDDDDD", linewidth=0.8, zorder=1.0)
        for before, after in pairwise(line):
            segments.append([(before["agent_steps"], lane), (after["agent_steps"], lane)])
            # Colour of the rating that the segment leads to.
            values.append(after["rating"])
    # Smoothed ends of neighbours would show as gaps.
    lines = LineCollection(
        segments, cmap=COLOURS, norm=norm, linewidths=3.0, zorder=2.0, antialiased=False
    )
    lines.set_array(values)
    axes.add_collection(lines)
    axes.autoscale_view()
    style.count_agent_steps(axes)
    axes.set_xlim(left=0)
    axes.set_ylim(len(ordered) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0.0)
    axes.spines["left"].set_visible(False)
    return lines


def _draw_copies(
    axes: Axes, lineage: Mapping[str, Any], ordered: Sequence[Mapping[str, Any]]
) -> None:
    lanes = {row["policy"]: lane for lane, row in enumerate(ordered)}
    begun = [
        row
        for row in lineage["generations"]
        if row["policy"] in lanes and row["generation"] > 0 and row["cause"] not in COPIES
    ]
    if len(ordered) > MAX_TICKED:
        begun = []
    line = _line_of(ordered[0]["policy"], lineage["generations"])
    axes.plot(
        [row["agent_steps_begin"] for row in begun],
        [lanes[row["policy"]] for row in begun],
        linestyle="none",
        marker="|",
        markersize=4.0,
        markeredgewidth=0.6,
        color="#000000",
        zorder=3.0,
    )
    for event in lineage["exploits"]:
        if event["subject"] not in lanes or event["donor"] not in lanes:
            continue
        is_best = (event["subject"], event["generation"]) in line
        arrow = FancyArrowPatch(
            (event["donor_agent_steps"], lanes[event["donor"]]),
            (event["agent_steps"], lanes[event["subject"]]),
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.12",
            mutation_scale=5.0,
            linewidth=1.0 if is_best else 0.6,
            color=BEST_LINE if is_best else OTHER_COPY,
            alpha=1.0 if is_best or len(ordered) <= MAX_TICKED else 0.35,
            shrinkA=0.0,
            shrinkB=1.0,
            zorder=5.0 if is_best else 4.0,
        )
        axes.add_patch(arrow)


def _line_of(policy: str, generations: Sequence[Mapping[str, Any]]) -> set[tuple[str, int]]:
    """Return the generations that a policy's weights go back to, by policy and number."""
    rows = {row["entrant"]: row for row in generations}
    own = [row for row in generations if row["policy"] == policy]
    row = max(own, key=lambda row: row["generation"], default=None)
    line: set[tuple[str, int]] = set()
    # A row of a repaired journal may name itself.
    while row is not None and (row["policy"], row["generation"]) not in line:
        line.add((row["policy"], row["generation"]))
        row = rows.get(row["parent"])
    return line
