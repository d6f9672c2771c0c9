"""Pooled curves of several runs: means over agent steps with 95% bands.

Tests: `tests/tools/test_compare.py`.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from arena.errors import ConfigError

from . import style
from .kinds import Documents

PANEL_INCHES = 2.4
LABELS = {"rating": "rating of the best policy (Elo)", "score": "score against bot:random"}


def draw(documents: Documents) -> Figure:
    """Draw rating and score of each population, a panel each."""
    document = documents["comparison"]
    curves = {name: points for name, points in document["populations"].items() if points}
    if not curves:
        raise ConfigError("there is nothing to plot yet: a run has no rated policy")
    figure = style.make_figure(style.WIDE_INCHES, PANEL_INCHES * len(curves))
    axes = figure.subplots(len(curves), len(LABELS), squeeze=False)
    for panels, (name, points) in zip(axes, curves.items(), strict=True):
        for panel, (key, label) in zip(panels, LABELS.items(), strict=True):
            known = [point for point in points if point[key] is not None]
            steps = [point["agent_steps"] for point in known]
            panel.plot(steps, [point[key] for point in known], color=style.PALETTE[0])
            banded = [point for point in known if point[f"{key}_low"] is not None]
            panel.fill_between(
                [point["agent_steps"] for point in banded],
                [point[f"{key}_low"] for point in banded],
                [point[f"{key}_high"] for point in banded],
                color=style.PALETTE[0],
                alpha=0.15,
                linewidth=0.0,
            )
            style.count_agent_steps(panel)
            panel.set_xlim(left=0)
            panel.set_ylabel(label)
        if len(curves) > 1:
            panels[0].set_title(style.shortened(name))
    return figure
