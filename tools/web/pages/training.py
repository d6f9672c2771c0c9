"""Pages of what training does: lineage, hyperparameters, metrics, openings.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from arena.metrics.names import TRAFFIC_METRICS, TRAINING_METRICS
from populations.views import charts, curves, figures
from populations.views.family_tree import family_tree
from populations.views.parts import Column, Line, Row, Section, Table, player

from ...show.html import Block, short
from .asked import Asked
from .league import MAX_LINES

MAX_LANES = 40
"""Policies of one tree."""

MAX_CHARTS = 24
"""Charts of one part."""

RUN = "run"
"""Name in the place of a policy in metrics of the run."""

FIRST = "training"
"""Title of the first part of metrics: what tells how training goes."""

NONE = (
    "There are no metrics: they are read from metrics.jsonl, which is written where metrics.sinks "
    "names jsonl."
)


def lineage(asked: Asked) -> Iterator[Block]:
    """Yield the family tree: generations, whose weights they began from, and what they gained."""

    def make() -> Iterator[Section]:
        policies = {str(row["policy"]): row for row in asked.rows("lineage", "policies")}
        for name in asked.populations():
            best = asked.best(name)
            rows = [policies[one] for one in best if one in policies][:MAX_LANES]
            if rows:
                yield Section(
                    title=Line("Lineage of {name} over agent steps", {"name": name}),
                    about="A bar is a generation, with the Elo that it gained, by one fit: blue "
                    "gained, orange lost. An arrow is a copy of weights. "
                    f"{len(rows)} of {len(best):,} policies.",
                    chart=family_tree([rows], asked.documents["lineage"], asked.reader),
                    csv="generations",
                )
        yield from asked.sections("lineage")

    yield from asked.part("Lineage", make, csv="lineage")


def hyperparameters(asked: Asked) -> Iterator[Block]:
    """Yield the values now, and over training each that differs or may change."""

    def make() -> Iterator[Section]:
        document = cast("Any", asked.documents["hyperparameters"])
        steps = {
            str(line["player"]): cast("int", line["agent_steps"])
            for lines in asked.populations().values()
            for line in lines
        }
        for name in asked.populations():
            best = asked.best(name)[:MAX_LINES]
            rows = [
                row
                for row in curves.with_ends(document["generations"], steps)
                if row["population"] == name and row["policy"] in best
            ]
            space = document["search_space"].get(name, {})
            for key in figures.changed(rows, space)[:MAX_CHARTS]:
                yield Section(
                    title=Line("{name}: {key}", {"name": name, "key": key}),
                    chart=curves.schedule(
                        key, rows, asked.reader, best_first=best, space=space.get(key, {})
                    ),
                    csv="generations",
                )

    yield from asked.part(
        "Hyperparameters", lambda: asked.sections("hyperparameters"), csv="hyperparameters"
    )
    yield from asked.part("Hyperparameters", make)


METRIC = (
    player("policy"),
    Column("points"),
    Column("last_at", "count", "last at"),
    Column("latest"),
    Column("lowest"),
    Column("highest"),
)


def groups_of(lines: Sequence[Row]) -> dict[str, list[str]]:
    """Return the names of metrics by their groups, sorted; before them what is telling."""
    found = {name for line in lines for name in line} - {"policy", "agent_steps"}
    telling = [name for name in curves.DEFAULT_METRICS if name in found]
    groups = {FIRST: telling} if telling else {}
    for group, names in itertools.groupby(sorted(found), key=lambda name: name.split("/")[0]):
        groups.setdefault(f"{group}/", []).extend(names)
    return groups


def parts_of_metrics(asked: Asked) -> dict[str, int]:
    """Return the numbers of the parts by their titles."""
    groups = groups_of(asked.rows("metrics", "metrics"))
    return {short(title): number for number, title in enumerate(groups, 1)}


def metrics(asked: Asked) -> Iterator[Block]:
    """Yield the charts of a group of metrics; each policy's last and extreme figures below."""
    lines = asked.rows("metrics", "metrics")
    if num_bad := asked.documents["metrics"].get("left_out"):
        note = f"Lines of metrics.jsonl that cannot be read: {num_bad}."
        yield Block(heading="Left out", about=note)
    groups = groups_of(lines)
    if not groups:
        yield Block(heading="Metrics", about=NONE)
        return
    names = [*groups.values()][min(asked.medium.number, len(groups)) - 1]
    order = _order(asked, lines)
    # The number is that of the group: its tables have one part.
    asked = replace(asked, medium=replace(asked.medium, number=1))
    for name in names[:MAX_CHARTS]:
        make = partial(_metric, asked, name, lines, order)
        yield from asked.part(short(name), make, csv="metrics")


def _order(asked: Asked, lines: Sequence[Row]) -> list[str]:
    """Return all policies with metrics: the run, the best of each population by turns, others."""
    best = [asked.best(name) for name in asked.populations()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*best))
    known = dict.fromkeys(str(line["policy"]) for line in lines)
    ranked = [policy for policy in turns if policy in known]
    return list(dict.fromkeys([*(one for one in (RUN,) if one in known), *ranked, *known]))


def _metric(asked: Asked, name: str, lines: Sequence[Row], order: Sequence[str]) -> list[Section]:
    found = curves.metric_points(lines, name)
    points = {policy: found[policy] for policy in order if policy in found}
    rows = []
    for policy, own in points.items():
        values = [cast("float", point["y"]) for point in own]
        rows.append(
            {
                "policy": policy,
                "points": len(own),
                "last_at": own[-1]["x"],
                "latest": values[-1],
                "lowest": min(values),
                "highest": max(values),
            }
        )
    return [
        Section(
            title=Line("{name}", {"name": name}),
            about={**TRAINING_METRICS, **TRAFFIC_METRICS}.get(name, "").replace("`", ""),
            chart=curves.metric(name, points, asked.reader),
            body=Table(METRIC, rows),
        )
    ]


UNCOUNTABLE = (
    "First decisions of this seat are not counted: they have numbers, or they or the seats are too "
    "many."
)
UNPLAYED = "No evaluation match of weights that are known has told its first decisions yet."

TOLD = (
    "Now {label} is played most, in {share:percents} of the matches; it leads since "
    "{since_agent_steps:count} agent steps, and the lead has changed {changes} times in windows of "
    "{window_agent_steps:count} agent steps"
)


def openings(asked: Asked) -> Iterator[Block]:
    """Yield shares and scores of first decisions, of all policies and of the champion's."""
    if asked.medium.number == 1:
        yield from asked.part("Openings", lambda: _openings(asked), csv="openings")
    yield from asked.part("Openings", lambda: asked.sections("openings"), csv="openings")


def _openings(asked: Asked) -> Iterator[Section]:
    every = cast("list[Mapping[str, Any]]", asked.rows("openings", "openings"))
    for summary in asked.rows("openings", "summary"):
        seat = [r for r in every if all(r[k] == summary[k] for k in ("population", "seat"))]
        rows = [row for row in seat if row["player"] == summary["player"]]
        who = "all policies" if summary["player"] is None else "{player:player}, of the champion"
        if not rows:
            if summary["player"] is None:
                note = UNPLAYED if summary["is_counted"] else UNCOUNTABLE
                yield Section(title=Line(f"{{seat}}, {who}", summary), above=[Line(note)])
            continue
        which = charts.Openings.of(seat, asked.reader)
        yield Section(
            title=Line(f"Shares: {{seat}}, {who}", summary),
            above=[_told(summary)],
            chart=charts.shares(rows, which, asked.reader),
        )
        if any(row["score"] is not None for row in rows):
            yield Section(
                title=Line(f"Scores: {{seat}}, {who}", summary),
                about="Mean score of the matches that began with it, a draw half; where that is "
                "not sure, a stroke.",
                chart=charts.scores(rows, which, asked.reader),
            )


def _told(summary: Row) -> Line:
    """Return what a seat's windows say."""
    template = TOLD
    if summary["mean_change"] is not None:
        template += "; from one to the next {mean_change:percents} of the mix changes"
    if summary["period_agent_steps"] is not None:
        template += "; mixes return after {period_agent_steps:count} agent steps"
    return Line(f"{template}.", {**summary, "changes": cast("int", summary["favourites"]) - 1})
