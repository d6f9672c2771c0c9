"""Ratings over agent steps, with 95% bands, and the history of champions.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from arena.errors import ConfigError

from ..open_intervals import upper_ends
from . import style
from .kinds import Documents

PANEL_INCHES, STRIP_INCHES = 2.9, 0.8
COPIES = ("exploit", "immigrate")
"""Causes of a generation that begins with weights of another player."""

MIN_LABEL = 0.09
"""Share of a strip in which a name has room."""


def draw(documents: Documents) -> Figure:
    """Draw the ratings of each population, and its champions below."""
    document = documents["ratings"]
    drawn = {
        name: [line for line in lines if line["points"]]
        for name, lines in document["populations"].items()
    }
    populations = [name for name, lines in drawn.items() if lines]
    if not populations:
        raise ConfigError("there is nothing to plot yet: no policy has a rating")
    heights = [PANEL_INCHES, STRIP_INCHES] * len(populations)
    figure = style.make_figure(style.WIDE_INCHES, sum(heights))
    axes = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
    names = list(document["populations"])
    num_others = 0
    for index, population in enumerate(populations):
        panel, strip = axes[2 * index], axes[2 * index + 1]
        colours = _draw_population(panel, drawn[population], names)
        num_others += len(drawn[population]) - len(colours.of)
        if len(populations) > 1:
            panel.set_title(style.shortened(population))
        spans = [one for one in document["champions"] if one["population"] == population]
        _draw_champions(strip, spans, drawn[population], colours=colours, names=names)
    marks = [style.mark("v", "copied"), style.mark("o", "other new generation", filled=False)]
    if num_others:
        marks.append(
            Line2D([], [], color=style.OTHERS, linewidth=0.6, label=f"{num_others} others")
        )
    figure.legend(handles=marks, loc="outside lower left", ncols=3)
    return figure


def _draw_population(
    axes: Axes, lines: Sequence[dict[str, Any]], names: Sequence[str]
) -> style.Colours:
    best_first = sorted(lines, key=lambda line: -line["points"][-1]["rating"])
    colours = style.Colours.ranked([line["player"] for line in best_first])
    labelled = {}
    for line in reversed(best_first):
        player, points = line["player"], line["points"]
        steps = [point["agent_steps"] for point in points]
        colour, stands_out = colours.colour(player), player in colours.of
        (curve,) = axes.plot(
            steps,
            [point["rating"] for point in points],
            color=colour,
            linewidth=1.2 if stands_out else 0.5,
            zorder=3.0 if stands_out else 1.5,
            label=player,
        )
        # Of many policies bands would cover each other.
        if stands_out:
            labelled[player] = curve
            axes.fill_between(
                steps,
                [point["rating_low"] for point in points],
                cast("list[float]", upper_ends(points)),
                color=colour,
                alpha=0.15 if colours.is_complete else 0.08,
                linewidth=0.0,
                zorder=1.0,
            )
            _mark_generations(axes, points, colour)
    axes.axhline(0.0, color="#888888", linewidth=0.5, linestyle=(0, (4, 3)), zorder=0.5)
    style.count_agent_steps(axes)
    axes.set_xlim(left=0)
    # All ratings are on a scale with it at 0.
    axes.text(
        *(0.995, 0.0, "bot:random"),
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="bottom",
        color="#666666",
    )
    axes.set_ylabel("rating (Elo)")
    axes.margins(y=0.04)
    axes.set_ylim(axes.get_ylim())
    best = {
        line["player"]: labelled[line["player"]]
        for line in best_first
        if line["player"] in labelled
    }
    style.label_ends(axes, best, populations=names, height_inches=PANEL_INCHES - 0.6)
    return colours


def _mark_generations(axes: Axes, points: Sequence[dict[str, Any]], colour: str) -> None:
    """Mark the first rated checkpoint of each generation but the first one."""
    begun = [
        after for before, after in pairwise(points) if after["generation"] != before["generation"]
    ]
    for marker, is_copy in (("v", True), ("o", False)):
        chosen = [point for point in begun if (point["cause"] in COPIES) == is_copy]
        axes.plot(
            [point["agent_steps"] for point in chosen],
            [point["rating"] for point in chosen],
            linestyle="none",
            marker=marker,
            markersize=4.0 if is_copy else 3.0,
            color=colour,
            markerfacecolor=colour if is_copy else "white",
            markeredgewidth=0.7,
            zorder=4.0,
        )


def _draw_champions(
    axes: Axes,
    spans: Sequence[dict[str, Any]],
    lines: Sequence[dict[str, Any]],
    *,
    colours: style.Colours,
    names: Sequence[str],
) -> None:
    """Draw a bar for each champion over the time of the run; the ratings' axis has no time."""
    times = [point["time"] for line in lines for point in line["points"] if point["time"]]
    times += [time for span in spans for time in (span["since"], span["until"]) if time]
    moments = [datetime.fromisoformat(time).timestamp() for time in times]
    axes.set_yticks([])
    axes.set_ylabel("champion", rotation=0, ha="right", va="center")
    axes.spines["left"].set_visible(False)
    if not moments:
        axes.set_xticks([])
        return
    begin, end = min(moments), max(moments)
    unit, seconds = _unit(end - begin)
    # Of simulated leagues all moments are the same.
    last = max((end - begin) / seconds, 1.0 if begin == end else 0.0)
    for span in spans:
        since = (datetime.fromisoformat(span["since"]).timestamp() - begin) / seconds
        until = last
        if span["until"] is not None:
            until = (datetime.fromisoformat(span["until"]).timestamp() - begin) / seconds
        colour = colours.colour(span["player"])
        axes.broken_barh(
            [(since, until - since)], (0.0, 1.0), facecolor=colour, edgecolor="white", linewidth=0.3
        )
        if until - since > MIN_LABEL * last:
            text = style.named(span["player"], names)
            axes.text(
                *((since + until) / 2.0, 0.5, text),
                ha="center",
                va="center",
                color=style.text_on(colour),
                clip_on=True,
            )
    axes.set_xlim(0.0, last)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel(f"time ({unit})" if begin < end else "time")
    if begin == end:
        axes.set_xticks([])
    axes.xaxis.set_major_formatter(FuncFormatter(style.number_text))


def _unit(duration_s: float) -> tuple[str, float]:
    """Return the unit of time in which a duration reads well, and its seconds."""
    for unit, seconds in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if duration_s >= 2.0 * seconds:
            return unit, seconds
    return "seconds", 1.0
