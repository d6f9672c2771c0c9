"""Look of all plots: fonts, widths, colours, axes and names. Fit for a paper.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, without their yellow, which
is too light for lines on white.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from arena.types import is_external
from populations.league.names import compact, short_name
from populations.views.texts import one_line

NARROW_INCHES, WIDE_INCHES = 3.4, 7.0
"""Width of one column of a paper, and of two."""

NUM_COLUMNS = 2
"""Columns of panels."""

MAX_INCHES = 9.0
"""Height of a page."""

POINTS_PER_INCH = 72.0
LINE_POINTS = 9.0
"""Distance of two lines of labels."""

STYLE: dict[Any, object] = {
    # matplotlib brings this font, so that layouts are equal everywhere.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.4,
    "savefig.dpi": 300,
    # A dollar in a name begins no formula.
    "text.parse_math": False,
    # Text stays text, to be searched and edited.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # Ids of an SVG's parts, which would else be drawn anew for each file.
    "svg.hashsalt": "arena",
}

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
NINE = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933"),
    *("#DDCC77", "#CC6677", "#882255", "#AA4499"),
)
"""Paul Tol's muted colours, for areas where `PALETTE` has too few."""

OTHERS = "#BBBBBB"
NUM_BEST = 5
"""Players with a colour where there are more than colours."""

MAX_NAME = 24
"""Characters of a name."""


def named(player: str, populations: Iterable[str]) -> str:
    """Return a player's name as plots show it: short, and of one line."""
    return shortened(short_name(player, populations=list(populations)))


def shortened(text: str, *, max_chars: int = MAX_NAME) -> str:
    """Return a text of users or environments as a label."""
    # Twice: what controls or turns round text is written longer than it was.
    return one_line(one_line(text[: 4 * max_chars]), max_chars=max_chars)


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours of policies.

    Attributes:
        of: Colour of each policy that stands out.
        is_complete: Whether all do.
    """

    of: Mapping[str, str]
    is_complete: bool

    @classmethod
    def ranked(cls, best_first: Sequence[str]) -> Colours:
        """Give all policies colours where these suffice, else the best ones."""
        if len(best_first) <= len(PALETTE):
            # In order of names, so that a policy keeps its colour.
            ordered = sorted(best_first)
            return cls(dict(zip(ordered, PALETTE, strict=False)), is_complete=True)
        best = best_first[:NUM_BEST]
        return cls(dict(zip(best, PALETTE, strict=False)), is_complete=False)

    def colour(self, player: str) -> str:
        """Return a policy's colour, or that of a ghost's policy."""
        return self.of.get(policy_of(player), OTHERS)


def policy_of(player: str) -> str:
    """Return the policy that a ghost is of; others are themselves."""
    return player if is_external(player) else player.split("@")[0]


def make_figure(width: float, height: float) -> Figure:
    """Make a figure in inches whose parts make room for each other."""
    return Figure(figsize=(width, min(height, MAX_INCHES)), layout="constrained")


def number_text(value: float, _position: object = None) -> str:
    """Return a number as an axis shows it."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def count_agent_steps(axes: Axes) -> None:
    """Make the x-axis one of agent steps."""
    axes.set_xlabel("agent steps")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(round(value))))


def text_on(colour: str) -> str:
    """Return the colour of text on a ground: black or white, whichever is easier to read."""
    # Relative luminance (WCAG 2.2); at 0.179 the contrasts of both are equal.
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    luminance = sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "black" if luminance > 0.179 else "white"


def make_panels(num_panels: int, *, inches: float) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels in two columns, with agent steps below the lowest of each."""
    num_rows = -(-num_panels // NUM_COLUMNS)
    # Below is a legend.
    figure = make_figure(WIDE_INCHES, inches * num_rows + 0.5)
    axes = list(figure.subplots(num_rows, NUM_COLUMNS, squeeze=False).ravel())
    for panel in axes[num_panels:]:
        panel.set_visible(False)
    for index, panel in enumerate(axes[:num_panels]):
        count_agent_steps(panel)
        if index + NUM_COLUMNS < num_panels:
            panel.set_xlabel("")
    return figure, axes[:num_panels]


def add_bar(figure: Figure, coloured: ScalarMappable, axes: Sequence[Axes], label: str) -> Colorbar:
    """Add a bar that says what colours mean, two inches high beside axes of any height."""
    share = min(0.9, 2.0 / figure.get_size_inches()[1])
    bar = figure.colorbar(coloured, ax=list(axes), shrink=share, aspect=18)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def spread(wanted: Sequence[float], *, gap: float) -> list[float]:
    """Return places near the wanted ones, in their order and at least a gap apart.

    Groups of neighbours that are too near are spread about their middle.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    groups: list[list[int]] = []
    middles: list[float] = []
    for place in order:
        group, middle = [place], wanted[place]
        # Two groups that overlap become one, which may overlap the one before.
        while groups and middle - middles[-1] < gap * (len(groups[-1]) + len(group)) / 2.0:
            last = groups.pop()
            weight = middles.pop() * len(last) + middle * len(group)
            group = last + group
            middle = weight / len(group)
        groups.append(group)
        middles.append(middle)
    places = [0.0] * len(wanted)
    for group, middle in zip(groups, middles, strict=True):
        for index, place in enumerate(group):
            places[place] = middle + gap * (index - (len(group) - 1) / 2.0)
    return places


def label_ends(
    axes: Axes, lines: Mapping[str, Line2D], *, populations: Iterable[str], height_inches: float
) -> None:
    """Label lines at their ends, in their colours; limits of the axes must not change afterwards.

    Args:
        axes: Axes of the lines.
        lines: Lines by player.
        populations: Names of the populations of the run.
        height_inches: Height of the axes, about.
    """
    ends = {
        player: (
            float(np.asarray(line.get_xdata(), dtype=float)[-1]),
            float(np.asarray(line.get_ydata(), dtype=float)[-1]),
        )
        for player, line in lines.items()
    }
    low, high = axes.get_ylim()
    wanted = [(end[1] - low) / (high - low) for end in ends.values()]
    gap = LINE_POINTS / (POINTS_PER_INCH * height_inches)
    for (player, end), place in zip(ends.items(), spread(wanted, gap=gap), strict=True):
        colour = str(lines[player].get_color())
        axes.annotate(
            named(player, populations),
            xy=end,
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4, "shrinkB": 0.0},
        )


def thinned(num_labels: int, *, inches: float) -> int:
    """Return that each how many-th label has room."""
    return max(1, math.ceil(num_labels * LINE_POINTS / (inches * POINTS_PER_INCH)))


def mark(marker: str, label: str, *, colour: str = "#444444", filled: bool = True) -> Line2D:
    """Return an entry of a legend for a marker."""
    return Line2D(
        *([], []),
        linestyle="none",
        marker=marker,
        markersize=4.0,
        color=colour,
        markerfacecolor=colour if filled else "white",
        label=label,
    )
