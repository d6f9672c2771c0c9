"""Charts over agent steps or time: ratings, champions, metrics, schedules, means of several runs.

Tests: `tests/populations/views/test_charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from populations.views.texts import moment

from . import parts
from .parts import Axis, Reader, Row, Rows, Spec, layer, paint, rounded, tip

MAX_OTHERS = 100
MAX_POINTS, MAX_OTHER_POINTS = 150, 40
"""Points of a line and of a grey one: a screen shows no more."""

MARKS, SHAPES = ("copied", "other new generation"), ("triangle-down", "circle")

LINE, LEADING = 1.5, 2.4
"""Pixels of the width of a line, and of a champion's schedule."""

STRIP = 34
"""Pixels of the height of bars of champions."""

DEFAULT_METRICS = (
    *("episode/return_mean", "episode/length_mean", "policy/entropy", "policy/kl"),
    *("value/explained_variance", "loss/value"),
)
"""Metrics that are drawn where none is asked for: what tells how training goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Row of a policy, or of anything else with a name.

    Attributes:
        player: Name of the player, or key.
        label: Displayed name.
        rows: Points with ``x`` and ``y``, and with ``low`` and ``high`` where there is a band.
        marks: Points with ``x``, ``y`` and ``mark``, one of `MARKS`.
    """

    player: str
    label: str
    rows: Rows = field(default_factory=list)
    marks: Rows = field(default_factory=list)


def thinned(points: Sequence[Row], *, most: int = MAX_POINTS) -> Rows:
    """Return about so many points, evenly, the last one among them."""
    step = -(-len(points) // most)
    kept = [dict(point) for point in points[:: max(step, 1)]]
    return kept if not points or kept[-1] == points[-1] else [*kept, dict(points[-1])]


def ratings(lines: Sequence[Row], reader: Reader) -> Spec:
    """Return the ratings of a population over agent steps, with 95% bands, marks and labels.

    Args:
        lines: Policies with their points, which all have a rating.
        reader: Page or file.
    """
    curves = [_rating_curve(line, reader) for line in best_first(lines)]
    spec = _lines(curves, reader, _rating_axis(curves), height=parts.HEIGHT)
    # All ratings are on a scale with it at 0.
    zero: Spec = {"y": {"datum": 0}}
    text = {**zero, "x": {"value": "width"}, "text": {"field": "name"}}
    right = {"align": "right", "baseline": "bottom", "dx": -3}
    spec["layer"] += [
        layer([{}], "rule", zero, strokeDash=[4, 3], strokeWidth=0.7, color=paint("grey")),
        layer([{"name": "bot:random"}], "text", text, color=paint("grey"), **right),
    ]
    return reader.sized(spec, parts.HEIGHT)


def best_first(lines: Iterable[Row]) -> list[Row]:
    """Return policies by the ratings of their last points."""
    return sorted(lines, key=lambda line: -line["points"][-1]["rating"])


def _rating_curve(line: Row, reader: Reader) -> Curve:
    points = thinned(line["points"])
    # The first rated checkpoint of each generation but the first one.
    begun = {point["generation"]: point for point in reversed(line["points"])}
    begun.pop(line["points"][0]["generation"])
    return Curve(
        player=line["player"],
        label=reader.player(line["player"]),
        rows=[
            {**_point(one), "low": rounded(one["rating_low"]), "high": rounded(high)}
            for one, high in zip(points, parts.upper_ends(points), strict=True)
        ],
        marks=[
            {**_point(one), "mark": MARKS[one["cause"] not in parts.COPIES], "generation": number}
            for number, one in sorted(begun.items())
        ],
    )


def _point(point: Row) -> dict[str, Any]:
    return {"x": point["agent_steps"], "y": rounded(point["rating"])}


def _rating_axis(curves: Sequence[Curve]) -> Axis:
    """Return an axis on which intervals have no more room than the curves, above and below."""
    rows = [row for curve in curves for row in curve.rows]
    values = [0.0, *(row["y"] for row in rows)]
    ends = [row[key] for row in rows for key in ("low", "high") if row[key] is not None]
    low, high = min(values), max(values)
    inner = max(2 * low - high, min(low, *ends)) if ends else low
    outer = min(2 * high - low, max(high, *ends)) if ends else high
    return Axis.around("rating (Elo)", (inner, outer))


def champions(spans: Sequence[Row], lines: Sequence[Row], reader: Reader) -> Spec | None:
    """Return a bar for each champion of a population over the time of the run; None: of no time.

    Args:
        spans: Champions with the times ``since`` and ``until`` (None: still).
        lines: Policies with their points, whose times are those of the run.
        reader: Page or file.
    """
    bounds = [(_seconds(span["since"]), _seconds(span["until"])) for span in spans]
    times = [_seconds(point["time"]) for line in lines for point in line["points"]]
    known = [
        time for time in (*times, *(one for both in bounds for one in both)) if time is not None
    ]
    if not known:
        return None
    begin, end = min(known), max(known)
    unit, seconds = _unit(end - begin)
    # All moments of a simulated league are the same.
    last = max((end - begin) / seconds, 1.0 if begin == end else 0.0)
    colours = reader.coloured([line["player"] for line in best_first(lines)])
    rows = []
    for span, (since_s, until_s) in zip(spans, bounds, strict=True):
        if since_s is None:
            continue
        since = (since_s - begin) / seconds
        until = last if until_s is None else (until_s - begin) / seconds
        name, policy = reader.player(span["player"]), span["player"].split("@")[0]
        row = {"x": rounded(since, 4), "x2": rounded(until, 4), "name": name}
        row["colour"] = colours.get(policy, "grey")
        # A name stands where a narrow page has room for it.
        if (until - since) / last * (reader.width or 300) > 7.0 * len(name):
            row["middle"] = rounded((since + until) / 2.0, 4)
        rows.append({**row, **reader.link(span["player"])})
    title = f"time ({unit})" if begin < end else "time"
    axis = {"grid": False, "tickCount": 6, "format": ".3~f"}
    x, middle = (parts.quantity(one, title, domain=(0, last), **axis) for one in ("x", "middle"))
    middle_row: Spec = {"y": {"value": STRIP / 2}}
    fill = {"value": {"expr": "colours[datum.colour]"}}
    told = tip(name="", x=".3~f", x2=".3~f")
    bars = {**middle_row, "x": x, "x2": {"field": "x2"}, "color": fill, "tooltip": told}
    texts = {**middle_row, "x": middle, "text": {"field": "name"}}
    layers = [
        layer(rows, "bar", bars, height=STRIP, stroke=paint("paper"), strokeWidth=0.3),
        layer([one for one in rows if "middle" in one], "text", texts, color=paint("paper")),
    ]
    return reader.sized({"layer": layers}, STRIP)


def _seconds(time: str | None) -> float | None:
    """Return a time in seconds; None: there is none, or it is none that a journal writes."""
    found = moment(time)
    return None if found is None else found.timestamp()


def _unit(duration_s: float) -> tuple[str, float]:
    """Return the unit of time in which a duration reads well, and its seconds."""
    for unit, seconds in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if duration_s >= 2.0 * seconds:
            return unit, seconds
    return "seconds", 1.0


def metric_points(lines: Sequence[Row], name: str) -> dict[str, list[Row]]:
    """Return the finite points of a metric with ``x`` and ``y``, by policy, in their order."""
    found: dict[str, list[Row]] = {}
    for line in lines:
        value = line.get(name)
        # Neither infinity nor NaN is a number that JSON has.
        if isinstance(value, int | float) and math.isfinite(value):
            point = {"x": line["agent_steps"], "y": float(f"{value:.6g}")}
            found.setdefault(str(line["policy"]), []).append(point)
    return found


def metric(name: str, points: Mapping[str, Sequence[Row]], reader: Reader) -> Spec:
    """Return a metric over agent steps, a line for each policy.

    Args:
        name: Name of the metric.
        points: Points of `metric_points`, by policy, the best first.
        reader: Page or file.
    """
    curves = [
        Curve(player=policy, label=reader.player(policy), rows=thinned(own))
        for policy, own in points.items()
    ]
    title, height = reader.framed(reader.text(name))
    axis = Axis.around(title, [row["y"] for curve in curves for row in curve.rows])
    return reader.panel(_lines(curves, reader, axis, height=height), height)


def with_ends(generations: Sequence[Row], steps: Mapping[str, int]) -> list[Row]:
    """Return generations, those that go on with the agent steps that their policies have."""
    return [
        {**line, "agent_steps_end": max(steps.get(line["policy"], 0), line["agent_steps_begin"])}
        if line.get("agent_steps_end") is None
        else line
        for line in generations
    ]


def schedule(
    name: str,
    generations: Sequence[Row],
    reader: Reader,
    *,
    best_first: Sequence[str],
    space: Mapping[str, Any],
) -> Spec:
    """Return a hyperparameter over the agent steps of each policy, in steps.

    Args:
        name: Name of the hyperparameter.
        generations: Generations of `with_ends`, in the order of each policy's life.
        reader: Page or file.
        best_first: Policies whose colours are chosen in this order, the champion first.
        space: Its part of the search space; empty: population-based training does not change it.
    """
    own = [line for line in generations if _is_shown(line["hyperparameters"].get(name))]
    title, height = reader.framed(reader.text(name))
    axis, values = _axis_of(title, [line["hyperparameters"][name] for line in own], space, reader)
    curves: dict[str, Curve] = {}
    for line, value in zip(own, values, strict=True):
        policy = line["policy"]
        curve = curves.setdefault(policy, Curve(player=policy, label=reader.player(policy)))
        begin = {"x": line["agent_steps_begin"], "y": axis.drawn(value)}
        # Both ends are drawn, as the last generation has no successor that would end its line.
        curve.rows.extend([begin, {**begin, "x": line["agent_steps_end"]}])
        if line["cause"] in parts.COPIES:
            curve.marks.append({**begin, "mark": MARKS[0], "generation": line["generation"]})
    places = {policy: place for place, policy in enumerate(best_first)}
    ranked = sorted(curves.values(), key=lambda one: places.get(one.player, len(places)))
    return reader.panel(_lines(ranked, reader, axis, height=height, is_stepped=True), height)


def _is_shown(value: object) -> bool:
    """Return whether a value has a place on an axis: there is one, and it is finite."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _axis_of(
    title: str, values: Sequence[Any], space: Mapping[str, Any], reader: Reader
) -> tuple[Axis, list[float]]:
    """Return the axis of a hyperparameter's values, and these as numbers."""
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        found = sorted({str(value) for value in values})
        labels = parts.unique([reader.text(one) for one in found])
        axis = Axis(title=title, low=-0.5, high=len(found) - 0.5, categories=labels)
        return axis, [float(found.index(str(value))) for value in values]
    scale = "linear"
    if space.get("complement") and max(values, default=1.0) < 1.0:
        scale = "complement"
    elif space.get("log") and min(values, default=0.0) > 0.0:
        scale = "log"
    return Axis.around(title, values, scale=scale), list(values)


def comparison(points: Sequence[Row], key: str, title: str, reader: Reader) -> Spec:
    """Return the mean of a figure of several runs over agent steps, with its 95% band.

    Args:
        points: Points with the figure and its interval.
        key: Name of the figure.
        title: Title of the axis.
        reader: Page or file.
    """
    rows: Rows = [
        {"x": point["agent_steps"], "y": rounded(point[key], 4)}
        | {end: rounded(point[f"{key}_{end}"], 4) for end in ("low", "high")}
        for point in points
        if point[key] is not None
    ]
    ends = [row[one] for row in rows for one in ("y", "low", "high") if row[one] is not None]
    curve = Curve(player=key, label="mean", rows=rows)
    spec = _lines([curve], reader, Axis.around(title, ends), height=parts.PANEL)
    return reader.panel(spec, parts.PANEL)


def _lines(
    curves: Sequence[Curve], reader: Reader, axis: Axis, *, height: float, is_stepped: bool = False
) -> Spec:
    """Return layers of bands, lines, marks and labels at the ends of lines that stand out.

    Args:
        curves: Curves, the best first.
        reader: Page or file.
        axis: Vertical axis, which is not changed afterwards.
        height: Pixels of the plot.
        is_stepped: Whether a value holds until the next one, and the first line stands out.
    """
    colours = reader.coloured([curve.player for curve in curves])
    bright = [curve for curve in curves if curve.player in colours]
    others = [curve for curve in curves if curve.player not in colours]
    unique = parts.unique([curve.label for curve in bright])
    labels = {curve.player: label for curve, label in zip(bright, unique, strict=True)}
    colour = parts.look("name", unique, [colours[player] for player in labels])
    last = max((row["x"] for curve in curves for row in curve.rows), default=0) or 1
    x = parts.quantity("x", "agent steps", domain=(0, last), **parts.STEPS)
    xy: Spec = {"x": x, "y": axis.encoding()}
    named = {**xy, "color": colour}
    step: Spec = {"interpolate": "step-after"} if is_stepped else {}
    rows = [{**row, "name": labels[curve.player]} for curve in bright for row in curve.rows]
    layers = _grey(others, xy, step)
    if any(row.get("low") is not None for row in rows):
        ends = {"x": x, "y": axis.encoding("low"), "y2": {"field": "high"}, "color": colour}
        layers.append(_shared("area", ends, opacity=0.09 if others else 0.15, clip=True))
    layers.append(_shared("line", named, strokeWidth=LINE, **step))
    if is_stepped and bright:
        # The first one is the champion's.
        own = [row for row in rows if row["name"] == labels[bright[0].player]]
        layers.append(layer(own, "line", named, strokeWidth=LEADING, **step))
    alone = {labels[curve.player] for curve in bright if len(curve.rows) == 1}
    if own := [row for row in rows if row["name"] in alone]:
        layers.append(layer(own, "point", named, **parts.DOTS))
    if reader.width is None:
        # These points can be pointed at; in a file they would be nothing.
        band = {key: ".4~g" for key in ("low", "high") if any(key in row for row in rows)}
        told = tip(name="", x=",", y=".4~g", **band)
        dots = {**parts.DOTS, "opacity": 0, "size": 80}
        layers.append(_shared("point", {**named, "tooltip": told}, **dots))
    if marks := [{**mark, "name": labels[one.player]} for one in bright for mark in one.marks]:
        kinds = MARKS[:1] if is_stepped else MARKS
        shape = parts.look("mark", kinds, SHAPES[: len(kinds)], title=None)
        told = tip(name="", mark="", generation=",", x=",")
        layers.append(
            layer(marks, "point", {**named, "shape": shape, "tooltip": told}, **parts.DOTS)
        )
    if axis.categories:
        layers.append(_category_labels(axis))
    layers += _end_labels(bright, labels, reader, axis, height=height, named=named)
    if others:
        at = {
            "x": {"value": "width"},
            "y": {"value": height + parts.LABEL},
            "text": {"field": "name"},
        }
        note = [{"name": f"{len(others)} others"}]
        layers.append(layer(note, "text", at, align="left", dx=5, color=paint("grey")))
    # Layers without rows of their own have these.
    return {"data": {"values": rows}, "layer": layers}


def _shared(mark: str, encoding: Spec, **look: object) -> Spec:
    """Return a layer of the rows that several layers share."""
    return {"mark": {"type": mark, **look}, "encoding": encoding}


def _grey(others: Sequence[Curve], xy: Spec, step: Spec) -> list[Spec]:
    """Return the lines that cannot be told apart."""
    if not others:
        return []
    rows = [
        {"x": row["x"], "y": row["y"], "name": curve.label, "line": place}
        for place, curve in enumerate(others[:MAX_OTHERS])
        for row in thinned(curve.rows, most=MAX_OTHER_POINTS)
    ]
    encoding = {**xy, "detail": {"field": "line"}, "tooltip": tip(name="")}
    return [
        layer(rows, "line", encoding, color=paint("grey"), strokeWidth=0.7, opacity=0.5, **step)
    ]


def _category_labels(axis: Axis) -> Spec:
    rows: Rows = [{"y": index, "name": name} for index, name in enumerate(axis.categories)]
    encoding = {"x": {"value": 0}, "y": axis.encoding(), "text": {"field": "name"}}
    return layer(rows, "text", encoding, align="right", dx=-5, limit=150)


def _end_labels(
    bright: Sequence[Curve],
    labels: Mapping[str, str],
    reader: Reader,
    axis: Axis,
    *,
    height: float,
    named: Spec,
) -> list[Spec]:
    """Return labels at the right, near the ends of their lines and apart, with lines to them."""
    drawn = [curve for curve in bright if curve.rows]
    ends = [curve.rows[-1] for curve in drawn]
    # Pixels from the top.
    wanted = [height * (1.0 - axis.place(axis.drawn(end["y"]))) for end in ends]
    rows = [
        {"x": end["x"], "y": end["y"], "name": labels[curve.player], "place": rounded(place)}
        | reader.link(curve.player)
        for curve, end, place in zip(
            drawn, ends, parts.spread(wanted, gap=parts.LABEL), strict=True
        )
    ]
    place = {"field": "place", "type": "quantitative", "scale": None, "axis": None}
    right = {"x": {"value": "width"}, "y": place, "color": named["color"]}
    text = {**right, "text": {"field": "name"}}
    rule = {**named, "x2": {"value": "width"}}
    return [
        layer(rows, "rule", rule, strokeWidth=0.5, opacity=0.8),
        layer(rows, "text", text, align="left", dx=5, limit=150),
    ]
