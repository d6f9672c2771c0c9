"""Plots of a league, one entry each: the view, the documents that it is drawn from, and how.

A plot shows what documents have: nothing is computed here that belongs into one. matplotlib is
imported by the modules that draw, so that this one takes no time.

Tests: `tests/tools/plots/test_files.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Document = Mapping[str, Any]
Documents = Mapping[str, Document]
"""Documents by the names of their views, all of one moment."""

DEFAULT_METRICS = (
    *("episode/return_mean", "episode/length_mean", "policy/entropy", "policy/kl"),
    *("value/explained_variance", "loss/value"),
)
"""Metrics that are drawn where none is asked for: what tells how training goes."""

SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Plot of one view.

    Attributes:
        module: Module of this package whose function ``draw`` takes documents and makes a figure.
        documents: Views whose documents it takes, its own first.
    """

    module: str
    documents: tuple[str, ...]

    def draw(self, documents: Documents) -> Figure:
        """Draw a figure.

        Raises:
            ConfigError: If there is nothing to draw yet.
        """
        # Only now: matplotlib takes most of a second.
        module = importlib.import_module(f".{self.module}", package=__package__)
        return cast("Callable[[Documents], Figure]", module.draw)(documents)


PLOTS: dict[str, Plot] = {
    "standings": Plot(module="standings", documents=("standings",)),
    "ratings": Plot(module="ratings", documents=("ratings",)),
    "payoff": Plot(module="payoff", documents=("payoff", "standings")),
    "lineage": Plot(module="lineage", documents=("lineage", "ratings")),
    "hyperparameters": Plot(
        module="hyperparameters", documents=("hyperparameters", "lineage", "status")
    ),
    "metrics": Plot(module="metrics", documents=("metrics", "standings")),
    "openings": Plot(module="openings", documents=("openings",)),
}


def find_plot(view: str, file: Path) -> Plot:
    """Return the plot of a view, before anything is read.

    Raises:
        ConfigError: If the view has none, the file's suffix says no kind of file, or matplotlib is
            not installed.
    """
    from arena.errors import ConfigError

    if view not in PLOTS:
        raise ConfigError(
            f"the view {view} has no plot: --plot draws one of {', '.join(PLOTS)}, which show "
            "numbers over time or between players"
        )
    check_plot_file(file)
    return PLOTS[view]


def check_plot_file(file: Path) -> None:
    """Refuse a file of which no plot can be made.

    Raises:
        ConfigError: If its suffix says no kind of file, or matplotlib is not installed.
    """
    from arena.errors import ConfigError

    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--plot {file}: the suffix says the kind of file, one of {', '.join(SUFFIXES)}, "
            f"not {file.suffix or 'nothing'}"
        )
    try:
        importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib") from error
