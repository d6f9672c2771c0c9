"""Figures of views for a paper: charts of `charts` below and beside each other, as one picture.

Tests: `tests/populations/views/test_charts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.errors import ConfigError

from . import charts, curves
from .chart_parts import CONFIG, Line, Reader, Spec
from .family_tree import family_tree

Document = Mapping[str, Any]

Documents = Mapping[str, Document]
"""Documents by the names of their views, all of one moment."""

WIDE, MIDDLE = 540, 220
"""Pixels of a plot as wide as a page, and of each of two beside each other."""

MAX_STANDINGS = 64
MAX_WITH_GHOSTS = 100
"""Players up to which a map has ghosts."""

MAX_ROWS = 4
"""Rows of openings, which fill a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Figure of one view.

    Attributes:
        draw: Function that makes a Vega-Lite specification, or an SVG, of documents for a reader.
        documents: Views whose documents it takes, its own first.
    """

    draw: Callable[[Documents, Reader], Spec | str]
    documents: tuple[str, ...]


def populations_of(documents: Documents) -> list[str]:
    """Return the names of the populations that documents are about."""
    for document in documents.values():
        if "populations" in document:
            return list(document["populations"])
    rows = [
        row
        for document in documents.values()
        for key in ("openings", "generations")
        for row in document.get(key, ())
    ]
    return list(dict.fromkeys(row["population"] for row in rows))


def standings(documents: Documents, reader: Reader) -> Spec:
    """Draw the best players of each population, the best on top."""
    parts = []
    populations = documents["standings"]["populations"]
    for name, every in populations.items():
        # A policy and its ghost with the same weights would be one whisker above the other.
        lines = [line for line in every if line["same_as"] is None]
        rated = [line for line in lines if line["rating"] is not None]
        rated.sort(key=lambda line: -line["rating"])
        if len(rated) > MAX_STANDINGS:
            # Ghosts give way to policies.
            rated = [line for line in rated if line["kind"] != "ghost"][:MAX_STANDINGS]
        notes = [reader.text(name)] if len(populations) > 1 else []
        if hidden := len(lines) - len(rated):
            notes.append(f"left out: {hidden} of {len(lines)} players")
        if rated:
            parts.append(_titled(charts.standings(rated, reader), ", ".join(notes)))
    return _below(parts, "no player has a rating", shared=())


def ratings(documents: Documents, reader: Reader) -> Spec:
    """Draw the ratings of each population, and its champions below."""
    document = documents["ratings"]
    parts = []
    for name, every in document["populations"].items():
        lines = [line for line in every if line["points"]]
        if not lines:
            continue
        title = reader.text(name) if len(document["populations"]) > 1 else ""
        parts.append(_titled(curves.ratings(lines, reader), title))
        spans = [one for one in document["champions"] if one["population"] == name]
        if strip := curves.champions(spans, lines, reader):
            parts.append(_titled(strip, "champion"))
    return _below(parts, "no policy has a rating")


def payoff(documents: Documents, reader: Reader) -> Spec:
    """Draw who scores how much against whom: a row per player, a column per opponent."""
    cells = [cell for cell in documents["payoff"]["payoff"] if cell["score"] is not None]
    lines = {
        (name, line["player"]): line
        for name, own in documents["standings"]["populations"].items()
        for line in own
    }
    names = list(documents["standings"]["populations"])
    met = {(cell["population"], cell["player"]) for cell in cells}
    met |= {(cell["opponent_population"], cell["opponent"]) for cell in cells}

    def order(key: tuple[str, str]) -> tuple[int, bool, float, str]:
        """Return the place of a player: by population, the best first, unrated ones last."""
        place = names.index(key[0]) if key[0] in names else len(names)
        rating = lines[key]["rating"] if key in lines else None
        return place, rating is None, -(rating or 0.0), key[1]

    ordered = sorted(met, key=order)
    note = ""
    if len(ordered) > MAX_WITH_GHOSTS:
        kept = [key for key in ordered if key not in lines or lines[key]["kind"] != "ghost"]
        note = f"; {len(ordered) - len(kept)} ghosts are left out"
        ordered = kept
    scores = {
        (
            (cell["population"], cell["player"]),
            (cell["opponent_population"], cell["opponent"]),
        ): cell
        for cell in cells
    }
    parts = [_titled(charts.payoff(scores, ordered, ordered, reader), f"stroke: no matches{note}")]
    return _below(parts if cells else [], "no evaluation matches were played")


def hyperparameters(documents: Documents, reader: Reader) -> Spec:
    """Draw the values that every policy has had; the champion's line stands out."""
    document = documents["hyperparameters"]
    steps = {row["policy"]: row["agent_steps"] for row in documents["lineage"]["policies"]}
    leaders = {
        name: one["player"].split("@")[0] for name, one in documents["status"]["champion"].items()
    }
    by_population: dict[str, list[Line]] = {}
    for row in curves.with_ends(document["generations"], steps):
        by_population.setdefault(row["population"], []).append(row)
    panels = []
    for population, rows in by_population.items():
        space = document["search_space"].get(population, {})
        policies = sorted({row["policy"] for row in rows})
        best = sorted(policies, key=lambda policy: (policy != leaders.get(population), policy))
        for name in changed(rows, space):
            panel = curves.schedule(
                *(name, rows, reader),
                best_first=best,
                space=space.get(name, {}),
                panel=MIDDLE,
            )
            title = f"{population}: {name}" if len(by_population) > 1 else name
            panels.append(_titled(panel, reader.text(title)))
    return _below(panels, "no hyperparameter differs or may change", yet="", columns=2)


def changed(generations: Sequence[Line], space: Mapping[str, object]) -> list[str]:
    """Return hyperparameters that population-based training may change, or that differ."""
    found: dict[str, set[object]] = {}
    for row in generations:
        for name, value in row["hyperparameters"].items():
            found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if name in space or len(values) > 1]


def metrics(documents: Documents, reader: Reader) -> Spec:
    """Draw the metrics that the document was asked for, or else those that tell most."""
    lines = documents["metrics"]["metrics"]
    found = {key for line in lines for key in line}
    # None is asked for: a run has more than a page can show.
    asked = documents["metrics"]["names"] or curves.DEFAULT_METRICS
    rated = [line for lines in documents["standings"]["populations"].values() for line in lines]
    rated.sort(key=lambda line: (line["rating"] is None, -(line["rating"] or 0.0)))
    best_first = [line["player"] for line in rated]
    panels = []
    for name in (one for one in asked if one in found):
        points = curves.metric_points(lines, name)
        order = [*(one for one in best_first if one in points), *sorted({*points} - {*best_first})]
        panel = curves.metric(name, {one: points[one] for one in order}, reader, panel=MIDDLE)
        panels.append(_titled(panel, reader.text(name)))
    return _below(
        panels,
        f"metrics.jsonl has none of {', '.join(asked)}; it is written where metrics.sinks names "
        "jsonl",
        yet="",
        columns=2,
    )


def openings(documents: Documents, reader: Reader) -> Spec:
    """Draw a row of two charts for each seat, of all policies and of the champion's."""
    groups: dict[tuple[str, str, str | None], list[Line]] = {}
    for row in documents["openings"]["openings"]:
        groups.setdefault((row["population"], row["seat"], row["player"]), []).append(row)
    # Rows of single policies are the first to be left out; the sort keeps the order of seats.
    chosen = set(sorted(groups, key=lambda key: key[2] is not None)[:MAX_ROWS])
    parts: list[Spec] = []
    for key in groups:
        if key not in chosen:
            continue
        # All rows of a seat have the same openings in the same colours.
        seat = [row for one in groups if one[:2] == key[:2] for row in groups[one]]
        which = charts.Openings.of(seat, reader)
        name = "all policies" if key[2] is None else reader.player(key[2])
        left = charts.shares(groups[key], which, reader, panel=MIDDLE)
        right = charts.scores(groups[key], which, reader, panel=MIDDLE)
        parts += [_titled(left, f"{reader.text(key[1])}: {name}"), _titled(right, "score")]
    figure = _below(
        parts,
        "no evaluation match has recorded openings, or first decisions are no actions that can be "
        "counted",
        yet="",
        columns=2,
        shared=("color",),
    )
    note = f"stroke: no score, or an interval wider than {charts.MAX_WIDTH:g}; blank: no matches"
    if hidden := len(groups) - len(chosen):
        note += f"; left out: {hidden} of {len(groups)} rows"
    figure["title"] = note
    return figure


def comparison(documents: Documents, reader: Reader) -> Spec:
    """Draw rating and score of each population over several runs, a panel each."""
    document = documents["comparison"]
    titles = {"rating": "rating of the best policy (Elo)", "score": "score against bot:random"}
    parts = [
        _titled(
            curves.comparison(points, key, title, reader, panel=MIDDLE),
            reader.text(name) if len(document["populations"]) > 1 else "",
        )
        for name, points in document["populations"].items()
        if points
        for key, title in titles.items()
    ]
    return _below(parts, "a run has no rated policy", columns=2)


def lineage(documents: Documents, reader: Reader) -> str:
    """Draw the family tree of each population."""
    document = documents["lineage"]
    rated = sorted(
        document["policies"],
        key=lambda row: (row["rating"] is None, -(row["rating"] or 0.0), row["policy"]),
    )
    populations: dict[str, list[Any]] = {}
    for row in rated:
        populations.setdefault(row["policy"].split("/")[0], []).append(row)
    return family_tree(list(populations.values()), document, reader, width=WIDE)


COMPARISON = Figure(draw=comparison, documents=("comparison",))

FIGURES: dict[str, Figure] = {
    "standings": Figure(draw=standings, documents=("standings",)),
    "ratings": Figure(draw=ratings, documents=("ratings",)),
    "payoff": Figure(draw=payoff, documents=("payoff", "standings")),
    "lineage": Figure(draw=lineage, documents=("lineage",)),
    "hyperparameters": Figure(
        draw=hyperparameters, documents=("hyperparameters", "lineage", "status")
    ),
    "metrics": Figure(draw=metrics, documents=("metrics", "standings")),
    "openings": Figure(draw=openings, documents=("openings",)),
}
"""Figures by their views."""


def _titled(spec: Spec, title: str) -> Spec:
    """Return a part of a figure, with its title."""
    part = {key: value for key, value in spec.items() if key != "config"}
    return {**part, "title": title} if title else part


def _below(
    parts: Sequence[Spec],
    reason: str,
    *,
    yet: str = " yet",
    columns: int = 1,
    shared: Sequence[str] = ("shape",),
) -> Spec:
    """Return a figure of parts below each other.

    Args:
        parts: Charts.
        reason: Why there are none, if so.
        yet: Word that promises that there will be some.
        columns: Charts beside each other.
        shared: Channels with one legend for all.

    Raises:
        ConfigError: If there are none.
    """
    if not parts:
        raise ConfigError(f"there is nothing to plot{yet}: {reason}")
    channels = ("color", "shape", "fill", "x", "y")
    scale = {one: "shared" if one in shared else "independent" for one in channels}
    return {
        "concat": list(parts),
        "columns": columns,
        "resolve": {"scale": scale},
        "config": CONFIG,
    }
