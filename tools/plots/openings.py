"""First decisions of each seat over training: how often they are played, and how they score.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from arena.errors import ConfigError
from populations.inspection.openings import interval

from . import style
from .kinds import Documents

PANEL_INCHES = 1.85
MAX_PANELS = 4
"""Rows of panels, which fill a page."""

MAX_WIDTH = 0.5
"""Width of a score's 95% interval from which on the score says nothing."""

HATCH: dict[str, Any] = {
    "hatch": "////",
    "edgecolor": "#D4D4D4",
    "facecolor": "white",
    "linewidth": 0.0,
}

FloatArray = npt.NDArray[np.float64]
Row = Mapping[str, Any]
Key = tuple[str, str, str | None]
"""Population, seat and policy (None: all policies)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One first decision, or all others together.

    Attributes:
        label: Displayed name.
        colour: Colour of its shares.
        actions: Actions that it stands for.
    """

    label: str
    colour: str
    actions: frozenset[int | None]


def draw(documents: Documents) -> Figure:
    """Draw a row of two panels for each seat, of all policies and of the champion's."""
    groups: dict[Key, list[Row]] = {}
    for row in documents["openings"]["openings"]:
        groups.setdefault((row["population"], row["seat"], row["player"]), []).append(row)
    if not groups:
        raise ConfigError(
            "there is nothing to plot: no evaluation match has recorded openings, or first "
            "decisions are no actions that can be counted"
        )
    # Rows of single policies are the first to be left out; the sort keeps the order of seats.
    chosen = set(sorted(groups, key=lambda key: key[2] is not None)[:MAX_PANELS])
    shown = [key for key in groups if key in chosen]
    figure = style.make_figure(style.WIDE_INCHES, PANEL_INCHES * len(shown) + 0.6)
    axes = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1.2, 1.0))
    names = {population for population, _, _ in groups}
    for (left, right), key in zip(axes, shown, strict=True):
        # All rows of a seat have the same openings in the same colours.
        openings = _openings([row for one in groups if one[:2] == key[:2] for row in groups[one]])
        _draw_shares(left, groups[key], openings)
        image = _draw_scores(right, groups[key], openings)
        ends = [row["agent_steps_to"] for one in groups if one[0] == key[0] for row in groups[one]]
        for panel in (left, right):
            style.count_agent_steps(panel)
            panel.set_xlim(0, max(ends) + 1)
        left.set_title(_title(key, names))
        right.set_title("score")
    for panel in axes[:-1].ravel():
        panel.set_xlabel("")
    bar = style.add_bar(figure, image, list(axes.ravel()), "score of the opening")
    bar.set_ticks([0.0, 0.25, 0.5, 0.75, 1.0], labels=["0", "0.25", "0.5", "0.75", "1"])
    note = f"no score, or an interval wider than {MAX_WIDTH:g}; blank: no matches"
    notes = [Patch(**HATCH, label=note)]
    if hidden := len(groups) - len(shown):
        notes.append(Patch(visible=False, label=f"left out: {hidden} of {len(groups)} rows"))
    figure.legend(handles=notes, loc="outside lower left", ncols=2)
    return figure


def _title(key: Key, names: Iterable[str]) -> str:
    _, seat, player = key
    seats = style.shortened(seat)
    return f"{seats}: all policies" if player is None else f"{seats}: {style.named(player, names)}"


def _openings(rows: Sequence[Row]) -> list[Opening]:
    """Return the openings that are played most, in order of their actions, and the others."""
    totals: dict[int, float] = {}
    labels: dict[int, str] = {}
    others: set[int | None] = {None}
    for row in rows:
        if row["action"] is not None:
            # Of all windows alike: what was played in an early time of many matches is no more.
            totals[row["action"]] = totals.get(row["action"], 0.0) + row["share"]
            labels[row["action"]] = row["label"]
    ranked = sorted(totals, key=lambda action: (-totals[action], action))
    most = sorted(ranked[: len(style.NINE)])
    others |= set(ranked) - set(most)
    found = [
        Opening(
            label=style.shortened(labels[action], max_chars=16),
            colour=colour,
            actions=frozenset({action}),
        )
        for action, colour in zip(most, style.NINE, strict=False)
    ]
    if others & {row["action"] for row in rows}:
        found.append(Opening(label="others", colour=style.OTHERS, actions=frozenset(others)))
    return found


def _table(rows: Sequence[Row], opening: Opening) -> tuple[FloatArray, FloatArray]:
    """Return the share and the score of an opening in each window; NaN: no matches, or unsure.

    float64 [windows] each.
    """
    size = 1 + max(row["window"] for row in rows)
    shares, scores = np.full(size, np.nan), np.full(size, np.nan)
    for row in rows:
        # Played in no match of a window with matches.
        shares[row["window"]] = 0.0
    own: dict[int, list[Row]] = {}
    for row in rows:
        if row["action"] in opening.actions:
            own.setdefault(row["window"], []).append(row)
    for window, found in own.items():
        shares[window] = sum(row["share"] for row in found)
        if all(row["score"] is not None for row in found):
            count = sum(row["count"] for row in found)
            points = sum(row["score"] * row["count"] for row in found)
            low, high = interval(points, count)
            if high - low <= MAX_WIDTH:
                scores[window] = points / count
    return shares, scores


def _edges(rows: Sequence[Row]) -> FloatArray:
    """Return the agent steps at which windows begin and end. float64 [windows + 1]."""
    width: int = rows[0]["agent_steps_to"] + 1 - rows[0]["agent_steps_from"]
    last: int = max(row["window"] for row in rows)
    return np.arange(last + 2, dtype=np.float64) * width


def _draw_shares(axes: Axes, rows: Sequence[Row], openings: Sequence[Opening]) -> None:
    edges = _edges(rows)
    below = np.zeros(len(edges) - 1)
    for opening in openings:
        shares, _ = _table(rows, opening)
        axes.stairs(
            below + shares,
            edges,
            baseline=below,
            fill=True,
            facecolor=opening.colour,
            edgecolor="white",
            linewidth=0.3,
            label=opening.label,
        )
        below = below + np.nan_to_num(shares)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    axes.set_ylabel("share")


def _draw_scores(axes: Axes, rows: Sequence[Row], openings: Sequence[Opening]) -> AxesImage:
    """Draw a row per opening in the order of the shares; its label is the legend of both."""
    edges = _edges(rows)
    scores = np.stack([_table(rows, opening)[1] for opening in openings])
    axes.patch.set(**HATCH)
    image = axes.imshow(
        np.ma.masked_invalid(scores),
        cmap="RdBu",
        vmin=0.0,
        vmax=1.0,
        aspect="auto",
        origin="lower",
        interpolation="none",
        extent=(0.0, float(edges[-1]), -0.5, len(openings) - 0.5),
    )
    axes.set_yticks(range(len(openings)), [opening.label for opening in openings])
    axes.tick_params(axis="y", length=0.0, pad=10.0)
    axes.spines[:].set_visible(False)
    for place, opening in enumerate(openings):
        axes.plot(
            *([-0.035], [place]),
            transform=axes.get_yaxis_transform(),
            marker="s",
            markersize=5.0,
            color=opening.colour,
            clip_on=False,
        )
    return image
