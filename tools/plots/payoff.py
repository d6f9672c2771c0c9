"""Map of scores between players, sorted by rating.

Tests: `tests/tools/plots/test_drawn.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arena.errors import ConfigError

from . import style
from .kinds import Documents

MAX_NUMBERED = 16
"""Players up to which cells have numbers."""

MAX_WITH_GHOSTS = 100
"""Players up to which ghosts are shown."""

NARROW = 8
"""Players up to which the map has the width of one column."""

Key = tuple[str, str]
"""Population and player."""


def draw(documents: Documents) -> Figure:
    """Draw who scores how much against whom: a row per player, a column per opponent."""
    cells = [cell for cell in documents["payoff"]["payoff"] if cell["score"] is not None]
    if not cells:
        raise ConfigError("there is nothing to plot yet: no evaluation matches were played")
    populations = documents["standings"]["populations"]
    ratings = {
        (name, line["player"]): line["rating"]
        for name, lines in populations.items()
        for line in lines
    }
    kinds = {line["player"]: line["kind"] for lines in populations.values() for line in lines}
    names = list(populations)
    met = {(cell["population"], cell["player"]) for cell in cells}
    met |= {(cell["opponent_population"], cell["opponent"]) for cell in cells}
    ordered = sorted(met, key=lambda key: _order(key, names, ratings.get(key)))
    hidden = 0
    if len(ordered) > MAX_WITH_GHOSTS:
        kept = [key for key in ordered if kinds.get(key[1]) != "ghost"]
        hidden, ordered = len(ordered) - len(kept), kept
    place = {key: index for index, key in enumerate(ordered)}
    scores = np.full((len(ordered), len(ordered)), np.nan)
    for cell in cells:
        row = place.get((cell["population"], cell["player"]))
        column = place.get((cell["opponent_population"], cell["opponent"]))
        if row is not None and column is not None:
            scores[row, column] = cell["score"]
    return _draw_map(scores, ordered, names=names, hidden=hidden)


def _order(key: Key, names: Sequence[str], rating: float | None) -> tuple[int, bool, float, str]:
    """Return the place of a player: by population, the best first, unrated ones last."""
    population, player = key
    place = names.index(population) if population in names else len(names)
    return place, rating is None, -(rating or 0.0), player


def _draw_map(
    scores: np.ndarray, ordered: Sequence[Key], *, names: Sequence[str], hidden: int
) -> Figure:
    size = len(ordered)
    width = style.NARROW_INCHES if size <= NARROW else style.WIDE_INCHES
    figure = style.make_figure(width, 0.9 * width)
    axes = figure.subplots()
    # What is not covered shows the ground: cells without matches.
    axes.set_facecolor("white")
    axes.patch.set(hatch="////", edgecolor="#D4D4D4", linewidth=0.0)
    image = axes.imshow(
        np.ma.masked_invalid(scores), cmap="RdBu", vmin=0.0, vmax=1.0, interpolation="none"
    )
    inches = 0.68 * width
    every = style.thinned(size, inches=inches)
    places = range(0, size, every)
    labels = [style.named(ordered[index][1], names) for index in places]
    axes.set_xticks(places, labels, rotation=90)
    axes.set_yticks(places, labels)
    axes.tick_params(length=2.0)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("player: the best rated first, unrated last")
    axes.set_xlabel("opponent")
    note = "hatched: no matches"
    axes.set_title(f"{note}; {hidden} ghosts are left out" if hidden else note, color="#444444")
    if size <= MAX_NUMBERED:
        _write_numbers(axes, scores)
    _separate(axes, [population for population, _ in ordered])
    bar = style.add_bar(figure, image, [axes], "score of the player")
    bar.set_ticks([0.0, 0.25, 0.5, 0.75, 1.0], labels=["0", "0.25", "0.5", "0.75", "1"])
    return figure


def _write_numbers(axes: Axes, scores: np.ndarray) -> None:
    for (row, column), score in np.ndenumerate(scores):
        if np.isfinite(score):
            # Dark ends of the map take white text.
            colour = "white" if abs(score - 0.5) > 0.3 else "black"
            text = f"{score:.2f}".removeprefix("0") if score < 1.0 else "1"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7.0)


def _separate(axes: Axes, populations: Sequence[str]) -> None:
    """Draw lines between populations."""
    for index, (before, after) in enumerate(pairwise(populations)):
        if before != after:
            axes.axhline(index + 0.5, color="black", linewidth=0.8)
            axes.axvline(index + 0.5, color="black", linewidth=0.8)
