"""Curves of metrics over agent steps: a panel for each metric, a line for each policy.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from arena.errors import ConfigError

from . import style
from .kinds import DEFAULT_METRICS, Documents

PANEL_INCHES = 1.6

Line = Mapping[str, Any]


def draw(documents: Documents) -> Figure:
    """Draw the metrics that the document was asked for, or else those of `DEFAULT_METRICS`."""
    lines: Sequence[Line] = documents["metrics"]["metrics"]
    found = {key for line in lines for key in line}
    # None is asked for: a run has more than a page can show.
    asked = documents["metrics"]["names"] or DEFAULT_METRICS
    chosen = [name for name in asked if name in found]
    if not chosen:
        raise ConfigError(
            f"there is nothing to plot: metrics.jsonl has none of {', '.join(asked)}; "
            "it is written where metrics.sinks names jsonl"
        )
    populations = documents["standings"]["populations"]
    curves = {name: _curves(lines, name) for name in chosen}
    colours = _colours(populations, {policy for one in curves.values() for policy in one})
    figure, axes = style.make_panels(len(chosen), inches=PANEL_INCHES)
    for panel, (name, curve) in zip(axes, curves.items(), strict=True):
        _draw_panel(panel, curve, colours)
        panel.set_title(style.shortened(name, max_chars=48))
    handles = [
        Line2D([], [], color=colour, linewidth=1.2, label=style.named(player, list(populations)))
        for player, colour in colours.of.items()
    ]
    if not colours.is_complete:
        handles.append(Line2D([], [], color=style.OTHERS, linewidth=0.6, label="others"))
    figure.legend(handles=handles, loc="outside lower left", ncols=7)
    return figure


def _curves(lines: Sequence[Line], name: str) -> dict[str, tuple[list[int], list[float]]]:
    """Return the points of a metric, by policy, in the order in which they were written."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for line in lines:
        if name in line:
            steps, values = curves.setdefault(line["policy"], ([], []))
            steps.append(line["agent_steps"])
            values.append(line[name])
    return curves


def _colours(
    populations: Mapping[str, Sequence[Mapping[str, Any]]], drawn: set[str]
) -> style.Colours:
    rated = [line for lines in populations.values() for line in lines if line["player"] in drawn]
    rated.sort(key=lambda line: (line["rating"] is None, -(line["rating"] or 0.0)))
    best_first = [str(line["player"]) for line in rated]
    # Metrics of the whole run, and policies without a standing.
    return style.Colours.ranked([*best_first, *sorted(drawn - set(best_first))])


def _draw_panel(
    axes: Axes,
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    colours: style.Colours,
) -> None:
    for policy, (steps, values) in curves.items():
        stands_out = policy in colours.of
        axes.plot(
            *(steps, values),
            color=colours.colour(policy),
            linewidth=1.0 if stands_out else 0.4,
            zorder=3.0 if stands_out else 1.5,
            marker="." if len(steps) == 1 else None,
            label=policy,
        )
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(FuncFormatter(style.number_text))
