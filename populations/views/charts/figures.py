"""Charts of views, composed once for a page and for a file: sections, each with a chart or a reason
for which there is none.

Tests: `tests/populations/views/test_charts.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.metrics.names import TRAFFIC_METRICS, TRAINING_METRICS
from populations.views.parts import Column, Line, Row, Section, Table, player

from . import curves, results
from .family_tree import family_tree
from .parts import Reader

Documents = Mapping[str, Mapping[str, Any]]
"""Documents by the names of their views, all of one moment."""

WIDE = 540
"""Pixels of a plot as wide as a file's page."""

MAX_WHISKERS, MAX_IN_FILE = 30, 64
"""Players of a chart of standings on a page, where more are a wall, and in a file."""

MAX_PLAYERS, MAX_WITH_GHOSTS = 32, 100
"""Players of a map on a page, where smaller cells cannot be hit, and in a file."""

MAX_LINES = 16
"""Policies of a chart on a page: more cannot be told apart."""

MAX_LANES = 40
"""Policies of each population in a tree on a page."""

MAX_CHARTS = 24
"""Charts of one part of a page."""

MAX_ROWS = 4
"""Rows of openings in a file, which fill a page."""

RUN = "run"
"""Name in the place of a policy in metrics of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Charts of one view.

    Attributes:
        draw: Function that makes sections of documents for a reader.
        documents: Views whose documents it takes, its own first.
        columns: Charts beside each other in a file.
        shared: Channel with one legend for all charts of a file.
    """

    draw: Callable[[Documents, Reader], list[Section]]
    documents: tuple[str, ...]
    columns: int = 1
    shared: str = "shape"


def _none(reason: str) -> list[Section]:
    return [Section(below=[Line(reason)])]


def standings(documents: Documents, reader: Reader) -> list[Section]:
    """Draw the best players of each population, the best on top."""
    parts = []
    most = reader.most(MAX_WHISKERS, MAX_IN_FILE)
    for name, every in documents["standings"]["populations"].items():
        # A policy and its ghost with the same weights would be one whisker above the other.
        lines = [line for line in every if line["same_as"] is None]
        rated = [line for line in lines if line["rating"] is not None]
        if len(rated) > most:
            # Ghosts give way to policies.
            rated = [line for line in rated if line["kind"] != "ghost"][:most]
        hidden = Line(f"left out: {len(lines) - len(rated)} of {len(lines)} players")
        parts.append(
            Section(
                title=Line("Standings of {name}", {"name": name}),
                chart=results.standings(rated, reader) if rated else None,
                below=[hidden] if rated and len(rated) < len(lines) else (),
            )
        )
    return parts + _none("no player has a rating")


def ratings(documents: Documents, reader: Reader) -> list[Section]:
    """Draw the ratings of each population, and its champions below."""
    document = documents["ratings"]
    parts = []
    for name, every in document["populations"].items():
        lines = curves.best_first(line for line in every if line["points"])
        lines = lines[: reader.most(MAX_LINES, len(lines))]
        if not lines:
            continue
        about = (
            f"All points are of one fit, with 95% intervals. {len(lines)} of {len(every):,} "
            "policies, the best now."
        )
        title = Line("Ratings of {name} over agent steps", {"name": name})
        parts.append(Section(title=title, about=about, chart=curves.ratings(lines, reader)))
        spans = [one for one in document["champions"] if one["population"] == name]
        if strip := curves.champions(spans, lines, reader):
            title = Line("Champions of {name} over time", {"name": name})
            parts.append(Section(title=title, chart=strip, csv="champions"))
    return parts or _none("no policy has a rating")


def payoff(documents: Documents, reader: Reader) -> list[Section]:
    """Draw who scores how much against whom, a map for each pair of populations, the best first."""
    cells = {
        results.sides_of(cell): cell
        for cell in documents["payoff"]["payoff"]
        # Each pair of seats has a cell of its own, which a map has no place for.
        if "seat" not in cell
    }
    met = {one for pair in cells for one in pair}
    most = reader.most(MAX_PLAYERS, MAX_WITH_GHOSTS)
    players: dict[str, list[results.Key]] = {}
    shown = {}
    for name, lines in documents["standings"]["populations"].items():
        own = [line for line in lines if (name, str(line["player"])) in met]
        if len(own) > most and reader.width:
            own = [line for line in own if line["kind"] != "ghost"]
        players[name] = [(name, str(line["player"])) for line in own][:most]
        shown[name] = f"{len(players[name])} of {len(lines):,} players"
    opposed = {(own[0], their[0]) for own, their in cells}
    return [
        Section(
            title=Line("{one} against {other}", {"one": one, "other": other}),
            about="Scores of rows against columns (1: always won), best rated first, "
            f"{shown[one]}. A cell leads to the games of the two, in an export to results.",
            chart=results.payoff(cells, rows, columns, reader),
            below=[Line(f"{shown[one]}; stroke: no matches")] if reader.width else (),
        )
        for one, rows in players.items()
        for other, columns in players.items()
        if (one, other) in opposed
    ] or _none("no evaluation matches were played")


def hyperparameters(documents: Documents, reader: Reader) -> list[Section]:
    """Draw the values over training of each that differs or may change."""
    document = documents["hyperparameters"]
    parts = []
    for name, lines in documents["standings"]["populations"].items():
        leader = next((one["player"].split("@")[0] for one in lines if one["champion"]), "")
        policies = {one["player"]: one["agent_steps"] for one in lines if one["kind"] == "policy"}
        best = sorted(policies, key=lambda policy: policy != leader)
        best = best[: reader.most(MAX_LINES, len(best))]
        rows = [
            row
            for row in curves.with_ends(document["generations"], policies)
            if row["population"] == name and row["policy"] in best
        ]
        space = document["search_space"].get(name, {})
        found = changed(rows, space)
        parts += [
            Section(
                title=Line("{name}: {key}", {"name": name, "key": key}),
                chart=curves.schedule(key, rows, reader, best_first=best, space=space.get(key, {})),
                csv="generations",
            )
            for key in found[: reader.most(MAX_CHARTS, len(found))]
        ]
    return parts or _none("no hyperparameter differs or may change")


def changed(generations: Sequence[Row], space: Mapping[str, object]) -> list[str]:
    """Return hyperparameters that population-based training may change, or that differ."""
    found: dict[str, set[object]] = {}
    for row in generations:
        for name, value in row["hyperparameters"].items():
            found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if name in space or len(values) > 1]


METRIC = (
    player("policy"),
    Column("points"),
    Column("last_at", "count", "last at"),
    Column("latest"),
    Column("lowest"),
    Column("highest"),
)


def metrics(documents: Documents, reader: Reader) -> list[Section]:
    """Draw the metrics that the document was asked for, or else those that tell most."""
    lines = documents["metrics"]["metrics"]
    # None is asked for: a run has more than a page can show.
    asked = documents["metrics"]["names"] or curves.DEFAULT_METRICS
    populations = documents["standings"]["populations"].values()
    # The run, the best of each population by turns, all others.
    turns = itertools.chain.from_iterable(
        itertools.zip_longest(*([one["player"] for one in own] for own in populations))
    )
    order = dict.fromkeys([RUN, *turns, *(line["policy"] for line in lines)])
    parts = []
    for name in asked[: reader.most(MAX_CHARTS, len(asked))]:
        found = curves.metric_points(lines, name)
        points = {policy: found[policy] for policy in order if policy in found}
        rows = [_extremes(policy, own) for policy, own in points.items()]
        if rows:
            parts.append(
                Section(
                    title=Line("{name}", {"name": name}),
                    about={**TRAINING_METRICS, **TRAFFIC_METRICS}.get(name, "").replace("`", ""),
                    chart=curves.metric(name, points, reader),
                    body=Table(METRIC, rows),
                )
            )
    return parts or _none(
        f"metrics.jsonl has none of {', '.join(asked)}; it is written where metrics.sinks names "
        "jsonl"
    )


def _extremes(policy: str, points: Sequence[Row]) -> Row:
    values = [point["y"] for point in points]
    return {
        "policy": policy,
        "points": len(points),
        "last_at": points[-1]["x"],
        "latest": values[-1],
        "lowest": min(values),
        "highest": max(values),
    }


UNCOUNTABLE = (
    "First decisions of this seat are not counted: some are random, or they have numbers, or they "
    "or the seats are too many."
)
UNPLAYED = "No evaluation match of weights that are known has told its first decisions yet."

TOLD = (
    "Now {label} is played most, in {share:percents} of the matches; it leads since "
    "{since_agent_steps:count} agent steps, and the lead has changed {changes} times in windows of "
    "{window_agent_steps:count} agent steps|; from one to the next {mean_change:percents} of the "
    "mix changes|; mixes return after {period_agent_steps:count} agent steps|."
)


def openings(documents: Documents, reader: Reader) -> list[Section]:
    """Draw shares and scores of first decisions of each seat: all policies', the champion's."""
    document = documents["openings"]
    groups: dict[tuple[str, str, str | None], list[Row]] = {}
    for row in document["openings"]:
        groups.setdefault((row["population"], row["seat"], row["player"]), []).append(row)
    # Rows of single policies are the first to be left out.
    order = sorted(groups, key=lambda key: key[2] is not None)
    chosen = order[: reader.most(len(order), MAX_ROWS)]
    parts = []
    for summary in document["summary"]:
        key = (summary["population"], summary["seat"], summary["player"])
        who = "all policies" if key[2] is None else "{player:player}, of the champion"
        if key not in groups and key[2] is None:
            note = UNPLAYED if summary["is_counted"] else UNCOUNTABLE
            parts.append(Section(title=Line(f"{{seat}}, {who}", summary), above=[Line(note)]))
        if key not in chosen:
            continue
        # All rows of a seat have the same openings in the same colours.
        seat = [row for one in groups if one[:2] == key[:2] for row in groups[one]]
        which = results.Openings.of(seat, reader)
        parts.append(
            Section(
                title=Line(f"Shares: {{seat}}, {who}", summary),
                above=[Line(TOLD, {**summary, "changes": summary["favourites"] - 1})],
                chart=results.shares(groups[key], which, reader),
            )
        )
        # A file has the names of colours beside the scores.
        if reader.width or any(row["score"] is not None for row in groups[key]):
            parts.append(
                Section(
                    title=Line(f"Scores: {{seat}}, {who}", summary),
                    about="Mean score of the matches that began with it, a draw half; where that "
                    "is not sure, a stroke.",
                    chart=results.scores(groups[key], which, reader),
                )
            )
    return parts


def lineage(documents: Documents, reader: Reader) -> list[Section]:
    """Draw the family tree: generations, whose weights they began from, and what they gained."""
    document = documents["lineage"]
    rated = sorted(
        document["policies"],
        key=lambda row: (row["rating"] is None, -(row["rating"] or 0.0), row["policy"]),
    )
    populations: dict[str, list[Any]] = {}
    for row in rated:
        populations.setdefault(row["policy"].split("/")[0], []).append(row)
    lanes = [rows[: reader.most(MAX_LANES, len(rows))] for rows in populations.values()]
    return [
        Section(
            title=Line("Lineage over agent steps"),
            about="A bar is a generation, with the Elo that it gained, by one fit: blue gained, "
            f"orange lost. An arrow is a copy of weights. {sum(map(len, lanes))} of "
            f"{len(rated):,} policies.",
            chart=family_tree(lanes, document, reader),
            csv="generations",
        )
    ]


def comparison(documents: Documents, reader: Reader) -> list[Section]:
    """Draw rating and score of each population over several runs, a panel each."""
    titles = {"rating": "rating of the best policy (Elo)", "score": "score against bot:random"}
    return [
        Section(
            title=Line("{name}", {"name": name}),
            chart=curves.comparison(points, key, title, reader),
        )
        for name, points in documents["comparison"]["populations"].items()
        if points
        for key, title in titles.items()
    ] or _none("a run has no rated policy")


COMPARISON = Figure(draw=comparison, documents=("comparison",), columns=2)
