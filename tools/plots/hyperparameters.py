"""Schedules of hyperparameters: a panel for each that changes, over agent steps.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from arena.errors import ConfigError

from . import style
from .kinds import Documents
from .ratings import COPIES

PANEL_INCHES = 1.6
MARGIN = 1.04
"""Factor of room for lines at the ends of a logarithmic axis."""

Generation = Mapping[str, Any]


def draw(documents: Documents) -> Figure:
    """Draw the values that every policy has had; the champion's line stands out."""
    document = documents["hyperparameters"]
    lines: dict[str, dict[str, list[Generation]]] = {}
    for row in document["generations"]:
        lines.setdefault(row["population"], {}).setdefault(row["policy"], []).append(row)
    panels = [
        (population, name)
        for population, policies in lines.items()
        for name in _changed(policies, document["search_space"].get(population, {}))
    ]
    if not panels:
        raise ConfigError("there is nothing to plot: no hyperparameter differs or may change")
    figure, axes = style.make_panels(len(panels), inches=PANEL_INCHES)
    steps = {row["policy"]: row["agent_steps"] for row in documents["lineage"]["policies"]}
    leaders = {
        name: style.policy_of(one["player"])
        for name, one in documents["status"]["champion"].items()
    }
    for panel, (population, name) in zip(axes, panels, strict=True):
        _draw_panel(panel, name, lines[population], steps=steps, leader=leaders.get(population))
        space = document["search_space"].get(population, {}).get(name, {})
        _scale(panel, name, lines[population], space=space)
        title = f"{population}: {name}" if len(lines) > 1 else name
        panel.set_title(style.shortened(title, max_chars=48))
    _add_legend(figure, lines, leaders)
    return figure


def _add_legend(
    figure: Figure,
    lines: Mapping[str, Mapping[str, Sequence[Generation]]],
    leaders: Mapping[str, str],
) -> None:
    handles = []
    for population, policies in lines.items():
        colours = style.Colours.ranked(_ranked(policies, leaders.get(population)))
        led = [one for one in (leaders.get(population),) if one in policies]
        shown = list(colours.of) if colours.is_complete else led
        for player in shown:
            if player is not None:
                is_leader = player == leaders.get(population)
                name = style.named(player, list(lines))
                handles.append(
                    Line2D(
                        *([], []),
                        color=colours.colour(player),
                        linewidth=2.0 if is_leader else 1.0,
                        label=f"{name} (champion)" if is_leader else name,
                    )
                )
        if not colours.is_complete:
            label = f"{len(policies) - len(shown)} others"
            handles.append(Line2D([], [], color=style.OTHERS, linewidth=0.6, label=label))
    handles.append(style.mark("v", "copied"))
    figure.legend(handles=handles, loc="outside lower left", ncols=5)


def _ranked(policies: Mapping[str, object], leader: str | None) -> list[str]:
    """Return the champion, then the others by name."""
    return sorted(policies, key=lambda policy: (policy != leader, policy))


def _changed(
    policies: Mapping[str, Sequence[Generation]], space: Mapping[str, object]
) -> list[str]:
    """Return hyperparameters that population-based training may change, or that differ."""
    found: dict[str, set[object]] = {}
    for rows in policies.values():
        for row in rows:
            for name, value in row["hyperparameters"].items():
                found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if name in space or len(values) > 1]


def _categories(name: str, policies: Mapping[str, Sequence[Generation]]) -> list[str] | None:
    """Return the names that a hyperparameter has as values, or None where these are numbers."""
    values = {
        row["hyperparameters"][name]
        for rows in policies.values()
        for row in rows
        if name in row["hyperparameters"]
    }
    if any(isinstance(value, str | bool) for value in values):
        return sorted(str(value) for value in values)
    return None


def _draw_panel(
    axes: Axes,
    name: str,
    policies: Mapping[str, Sequence[Generation]],
    *,
    steps: Mapping[str, int],
    leader: str | None,
) -> None:
    categories = _categories(name, policies)
    ranked = _ranked(policies, leader)
    colours = style.Colours.ranked(ranked)
    for policy in reversed(ranked):
        rows = [row for row in policies[policy] if name in row["hyperparameters"]]
        if not rows:
            continue
        values = [row["hyperparameters"][name] for row in rows]
        if categories is not None:
            values = [categories.index(str(value)) for value in values]
        begins = [row["agent_steps_begin"] for row in rows]
        is_leader = policy == leader
        stands_out = is_leader or colours.is_complete
        colour = colours.colour(policy) if stands_out else style.OTHERS
        order = 3.0 if is_leader else 2.0 if stands_out else 1.5
        ends = [*begins[1:], max(steps.get(policy, 0), begins[-1])]
        if not stands_out:
            # Steps and marks of very many would cover the values.
            axes.hlines(
                *(values, begins, ends), color=colour, linewidth=0.5, zorder=order, label=policy
            )
            continue
        axes.plot(
            [*begins, ends[-1]],
            [*values, values[-1]],
            drawstyle="steps-post",
            color=colour,
            linewidth=2.0 if is_leader else 1.0,
            zorder=order,
            label=policy,
        )
        copies = [place for place, row in enumerate(rows) if row["cause"] in COPIES]
        axes.plot(
            [begins[place] for place in copies],
            [values[place] for place in copies],
            linestyle="none",
            marker="v",
            markersize=4.0,
            color=colour,
            zorder=order + 0.1,
        )
    axes.set_xlim(left=0)


def _scale(
    axes: Axes,
    name: str,
    policies: Mapping[str, Sequence[Generation]],
    *,
    space: Mapping[str, Any],
) -> None:
    """Scale the y-axis as the search space does."""
    categories = _categories(name, policies)
    if categories is not None:
        labels = [style.shortened(one, max_chars=12) for one in categories]
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(-0.5, len(labels) - 0.5)
        return
    axes.yaxis.set_major_formatter(FuncFormatter(style.number_text))
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if not space.get("log"):
        return
    if space.get("complement") and high < 1.0:
        axes.set_yscale("function", functions=(_from_complement, _to_complement))
        axes.yaxis.set_minor_locator(NullLocator())
        ends = (_rounded(1.0 - high, up=False), _rounded(1.0 - low, up=True))
        axes.set_yticks([1.0 - one for one in _round_numbers(*ends)])
        axes.set_ylim(1.0 - ends[1] * MARGIN, 1.0 - ends[0] / MARGIN)
    elif low > 0.0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(style.number_text))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(_rounded(low, up=False) / MARGIN, _rounded(high, up=True) * MARGIN)


def _from_complement(values: np.ndarray) -> np.ndarray:
    # 1 itself is infinitely far: a margin below it is enough for an axis.
    return -np.log10(np.maximum(1.0 - np.asarray(values, dtype=float), 1e-12))


def _to_complement(values: np.ndarray) -> np.ndarray:
    return 1.0 - 10.0 ** -np.asarray(values, dtype=float)


def _round_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten from low to high."""
    first, last = int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1
    numbers = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in (1, 2, 5)]
    return [one for one in numbers if low * 0.999 <= one <= high * 1.001]


def _rounded(value: float, *, up: bool) -> float:
    """Return the next of the numbers 1, 2 and 5 times a power of ten."""
    near = _round_numbers(value / 10.0, value * 10.0)
    if up:
        return min(one for one in near if one >= value * 0.999)
    return max(one for one in near if one <= value * 1.001)
