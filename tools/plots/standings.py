"""Standings as a forest plot: ratings with their 95% intervals as whiskers.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arena.errors import ConfigError

from ..open_intervals import upper_ends
from . import style
from .kinds import Documents

MAX_ROWS = 64
ROW_INCHES = 0.132
KINDS = {"policy": ("o", True), "ghost": ("o", False), "bot": ("s", True)}
"""Marker of each kind of player, and whether it is filled."""


def draw(documents: Documents) -> Figure:
    """Draw the best players of each population, the best on top."""
    populations = {
        # A policy and its ghost with the same weights would be one whisker above the other.
        name: [line for line in lines if line["same_as"] is None]
        for name, lines in documents["standings"]["populations"].items()
    }
    shown = {name: _chosen(lines) for name, lines in populations.items()}
    shown = {name: lines for name, lines in shown.items() if lines}
    if not shown:
        raise ConfigError("there is nothing to plot yet: no player has a rating")
    heights = [ROW_INCHES * len(lines) + 0.2 for lines in shown.values()]
    # Below are an axis for each, and the legend.
    figure = style.make_figure(style.NARROW_INCHES, sum(heights) + 0.4 * len(heights) + 0.4)
    axes = figure.subplots(len(shown), squeeze=False, height_ratios=heights)[:, 0]
    for panel, (population, lines) in zip(axes, shown.items(), strict=True):
        _draw_population(panel, lines, list(populations))
        hidden = len(populations[population]) - len(lines)
        notes = [style.shortened(population)] if len(shown) > 1 else []
        notes += [f"left out: {hidden} of {len(populations[population])} players"] if hidden else []
        panel.set_title(", ".join(notes), color="#444444")
    found = {line["kind"] for lines in shown.values() for line in lines}
    marks = [
        style.mark(marker, kind, colour=_colour(kind), filled=filled)
        for kind, (marker, filled) in KINDS.items()
        if kind in found
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=3)
    return figure


def _chosen(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rated players that have room, the best first; ghosts give way to policies."""
    rated = sorted(
        (one for one in lines if one["rating"] is not None), key=lambda one: -one["rating"]
    )
    if len(rated) > MAX_ROWS:
        rated = [one for one in rated if one["kind"] != "ghost"]
    return rated[:MAX_ROWS]


def _colour(kind: str) -> str:
    return {"policy": style.PALETTE[0], "bot": "#000000"}.get(kind, "#777777")


def _draw_population(axes: Axes, lines: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    for row, (line, high) in enumerate(zip(lines, upper_ends(lines), strict=True)):
        marker, filled = KINDS[line["kind"]]
        colour, rating = _colour(line["kind"]), line["rating"]
        whiskers = None
        # A rating that rests on one game has no interval.
        if line["rating_low"] is not None and high is not None:
            whiskers = np.array([[rating - line["rating_low"]], [high - rating]])
        axes.errorbar(
            *([rating], [row]),
            xerr=whiskers,
            marker=marker,
            markersize=3.5,
            color=colour,
            markerfacecolor=colour if filled else "white",
            markeredgewidth=0.8,
            elinewidth=0.8,
            label=line["player"],
        )
    axes.set_yticks(range(len(lines)), [style.named(line["player"], names) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0.0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("rating (Elo), 95% intervals")
