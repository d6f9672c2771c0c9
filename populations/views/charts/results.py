"""Charts between players: standings, differences of runs, payoff, mixture, openings.

Tests: `tests/populations/views/test_charts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena.matches.pair_scores import wilson

from . import parts
from .parts import PALETTE, Reader, Row, Rows, Spec, layer, paint, rounded, tip

Key = tuple[str, str]
"""Population and name of a player; a bot plays in several populations."""

KINDS = {
    "policy": ("blue", "circle"),
    "ghost": ("grey", "diamond"),
    "bot": ("orange", "square"),
}
"""Colour and shape of each kind of player."""

MAX_NUMBERED = 16
"""Players up to which the cells of a map have numbers."""

MAX_WIDTH = 0.5
"""Width of a score's 95% interval from which on the score says nothing."""


def sides_of(cell: Row) -> tuple[Key, Key]:
    """Return the player of a cell of the payoff table, and its opponent."""
    return (
        (str(cell["population"]), str(cell["player"])),
        (str(cell.get("opponent_population")), str(cell["opponent"])),
    )


def standings(lines: Sequence[Row], reader: Reader) -> Spec:
    """Return the rated players of a population, the best on top, with 95% intervals.

    Args:
        lines: Lines of the standings, in their order.
        reader: Page or file.
    """
    rated = [line for line in lines if line["rating"] is not None]
    labels = parts.unique([reader.player(line["player"]) for line in rated])
    rows: Rows = [
        {"name": name, "kind": line["kind"], "value": rounded(line["rating"])}
        # A rating that rests on one game has no interval.
        | {"low": rounded(line["rating_low"]), "high": rounded(high)}
        | reader.link(line["player"])
        for name, line, high in zip(labels, rated, parts.upper_ends(rated), strict=True)
    ]
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    colour = parts.look("kind", kinds, [KINDS[kind][0] for kind in kinds], title=None)
    shape = parts.look("kind", kinds, [KINDS[kind][1] for kind in kinds], title=None)
    told = tip(name="", value=".0f", low=".0f", high=".0f")
    # Its end is where the picture ends.
    for row, line in zip(rows, rated, strict=True):
        if line.get("open"):
            row["interval"] = "open above"
            told = tip(name="", value=".0f", low=".0f", high=".0f", interval="")
    spec = _intervals(rows, labels, "rating (Elo), 95% intervals", {"color": colour}, told)
    spec["layer"][1]["encoding"]["shape"] = shape
    return reader.sized(spec, 15 * len(rows) + 5)


def differences(
    rows: Sequence[tuple[str, Sequence[Row]]],
    labels: Sequence[str],
    reader: Reader,
    *,
    title: str,
) -> Spec:
    """Return values of two runs with their intervals, those of a row beside each other.

    Args:
        rows: Label of each row, and of each run ``player``, ``value``, ``low`` and ``high``.
        labels: Labels of the runs.
        reader: Page or file.
        title: Title of the axis.
    """
    own = parts.unique([reader.text(label) for label, _ in rows])
    runs = parts.unique(labels)
    points: Rows = [
        {"name": name, "run": run, "player": reader.text(point["player"])}
        | {key: rounded(point[key], 4) for key in ("value", "low", "high")}
        for name, (_, both) in zip(own, rows, strict=True)
        for run, point in zip(runs, both, strict=True)
        if None not in (point["value"], point["low"], point["high"])
    ]
    beside = {"field": "run", "sort": runs}
    encoding = {
        "color": parts.look("run", runs, PALETTE[:2], title=None),
        "yOffset": beside,
    }
    told = tip(name="", run="", player="", value=".4~g", low=".4~g", high=".4~g")
    return reader.sized(_intervals(points, own, title, encoding, told), 30 * len(own) + 5)


def _intervals(rows: Rows, labels: Sequence[str], title: str, more: Spec, told: list[Spec]) -> Spec:
    """Return layers of whiskers and points, a row for each name."""
    whiskers = [row for row in rows if None not in (row["low"], row["high"])]
    y = {"y": parts.names("name", labels), **more}
    low, value = (parts.quantity(one, title, tickCount=6) for one in ("low", "value"))
    return {
        "layer": [
            layer(whiskers, "rule", {**y, "x": low, "x2": {"field": "high"}}, strokeWidth=1.2),
            layer(rows, "point", {**y, "x": value, "tooltip": told}, **parts.DOTS),
        ]
    }


def payoff(
    scores: Mapping[tuple[Key, Key], Row],
    rows: Sequence[Key],
    columns: Sequence[Key],
    reader: Reader,
) -> Spec:
    """Return a map of scores: a row per player, a column per opponent.

    Args:
        scores: Results by player and opponent.
        rows: Players, in the order of rows.
        columns: Opponents.
        reader: Page or file.
    """
    own, others = (
        parts.unique([reader.player(name) for _, name in key]) for key in (rows, columns)
    )
    cells: Rows = []
    unmet: Rows = []
    for row, player in zip(own, rows, strict=True):
        for column, opponent in zip(others, columns, strict=True):
            line = scores.get((player, opponent))
            cell = {"row": row, "column": column}
            if line is None or line["score"] is None:
                unmet.append(cell)
                continue
            counts = {key: line[key] for key in ("wins", "draws", "losses") if key in line}
            address = parts.linked(reader.versus(player[1], opponent[1]))
            cells.append({**cell, "score": rounded(line["score"], 3), **counts, **address})
    size = max(len(own), len(others), 1)
    side = min(26.0, 500 / size)
    if reader.width is None:
        # Large enough to be hit.
        side = max(14.0, side)
    thin = {"labelOverlap": "greedy"}
    top = parts.names("column", others, "opponent", labelAngle=-90, orient="top", **thin)
    xy: Spec = {"x": top, "y": parts.names("row", own, "player", **thin)}
    told = tip(row="", column="", wins=",", draws=",", losses=",", score=".3f")
    coloured = {**xy, "color": parts.score_colour("score of the player"), "tooltip": told}
    strokes = {**xy, "tooltip": told[:2]}
    layers = [
        layer(unmet, "point", strokes, **{**parts.HATCH, "size": round(side**2 / 4)}),
        layer(cells, "rect", coloured),
    ]
    if size <= MAX_NUMBERED:
        # White text is easier to read than black there.
        ends = {"test": "abs(datum.score - 0.45) > 0.435", "value": "white"}
        text = {"field": "score", "format": ".2f"}
        ink = {"condition": ends, "value": "black"}
        layers.append(layer(cells, "text", {**xy, "text": text, "color": ink}, fontSize=9))
    width = round(side * len(others)) if reader.width else None
    return reader.sized({"layer": layers}, side * len(own), width=width)


def mixture(members: Sequence[Row], reader: Reader) -> Spec:
    """Return a bar for the probability of each member of a Nash mixture, in their order."""
    labels = parts.unique([reader.player(line["player"]) for line in members])
    rows: Rows = [
        {"name": name, "value": rounded(line["probability"], 4)} | reader.link(line["player"])
        for name, line in zip(labels, members, strict=True)
    ]
    x = parts.quantity("value", "probability", domain=(0, 1))
    xy = {"x": x, "y": parts.names("name", labels)}
    bars = {**xy, "tooltip": tip(name="", value=".4f")}
    texts = {**xy, "text": {"field": "value", "format": ".3f"}}
    layers = [
        layer(rows, "bar", bars, color=paint(PALETTE[0])),
        layer(rows, "text", texts, align="left", dx=4),
    ]
    return reader.sized({"layer": layers}, 22 * len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """First decisions of a seat that are drawn: those that are played most, and all others.

    Attributes:
        labels: Labels in order of the actions, each with its colour.
        places: Place among the labels of each action; None: what tallies do not keep apart.
        last: Agent steps at the end of the axis.
    """

    labels: Mapping[str, str]
    places: Mapping[int | None, int]
    last: int

    @classmethod
    def of(cls, rows: Sequence[Row], reader: Reader) -> Openings:
        """Choose the openings of a seat, by the rows of all its windows."""
        totals: dict[int, float] = {}
        labels: dict[int, str] = {}
        for row in rows:
            if row["action"] is not None:
                # All windows count alike: what was played in an early time of many matches is no
                # more.
                totals[row["action"]] = totals.get(row["action"], 0.0) + row["share"]
                labels[row["action"]] = row["label"]
        ranked = sorted(totals, key=lambda action: (-totals[action], action))
        most = sorted(ranked[: len(parts.AREAS)])
        places: dict[int | None, int] = {action: place for place, action in enumerate(most)}
        rest: list[int | None] = [*ranked[len(parts.AREAS) :]]
        rest += [None for row in rows if row["action"] is None]
        texts = [reader.text(labels[action]) for action in most] + ["others"] * bool(rest)
        colours = (*parts.AREAS[: len(most)], "grey")
        return cls(
            labels=dict(zip(parts.unique(texts), colours, strict=False)),
            places=places | dict.fromkeys(rest, len(most)),
            last=1 + max(row["agent_steps_to"] for row in rows),
        )

    def cells(self, rows: Sequence[Row]) -> list[tuple[dict[str, object], list[Row]]]:
        """Return each opening in each window that has matches, with its rows."""
        found: dict[tuple[int, int], list[Row]] = {}
        for row in rows:
            found.setdefault((row["window"], self.places[row["action"]]), []).append(row)
        names = list(self.labels)
        return [
            (
                {"x": own[0]["agent_steps_from"], "x2": own[0]["agent_steps_to"] + 1}
                | {"name": names[place], "count": sum(row["count"] for row in own)},
                own,
            )
            for (_, place), own in sorted(found.items())
        ]

    def look(self, **legend: object) -> Spec:
        """Return the encoding of an opening by its colour."""
        return parts.look("name", list(self.labels), list(self.labels.values()), **legend)

    def window(self, field: str = "x") -> Spec:
        """Return the encoding of a window of agent steps."""
        x = parts.quantity(field, "agent steps", domain=(0, self.last), grid=False, **parts.STEPS)
        return {"x": x, "x2": {"field": "x2"}}


def shares(rows: Sequence[Row], openings: Openings, reader: Reader) -> Spec:
    """Return how often each first decision was played, stacked in windows of agent steps.

    Args:
        rows: Rows of one seat, of all policies or of one.
        openings: Openings of the seat.
        reader: Page, which has a legend, or file.
    """
    below: dict[object, float] = {}
    made: Rows = []
    for cell, own in openings.cells(rows):
        first = below.get(cell["x"], 0.0)
        share = sum(row["share"] for row in own)
        below[cell["x"]] = first + share
        ends = {"y": rounded(first, 4), "y2": rounded(first + share, 4)}
        made.append({**cell, **ends, "share": rounded(share, 4)})
    y = parts.quantity("y", "share", domain=(0, 1), tickCount=3)
    legend = {"columns": 3, "symbolType": "square", "labelLimit": 90, "title": None}
    told = tip(name="", share=".1%", count=",", x=",", x2=",")
    encoding = {**openings.window(), "y": y, "y2": {"field": "y2"}, "tooltip": told}
    encoding["fill"] = openings.look(**({} if reader.width else legend))
    height = 0.8 * parts.PANEL if reader.width else parts.HEIGHT
    return reader.panel(
        layer(made, "rect", encoding, stroke=paint("paper"), strokeWidth=0.2), height
    )


def scores(rows: Sequence[Row], openings: Openings, reader: Reader) -> Spec:
    """Return how each first decision scored in windows of agent steps, where that is sure.

    Args:
        rows: Rows of one seat, of all policies or of one.
        openings: Openings of the seat.
        reader: Page or file.
    """
    sure: Rows = []
    unsure: Rows = []
    for cell, own in openings.cells(rows):
        if score := _score(own):
            sure.append({**cell, **score})
        else:
            middle = (own[0]["agent_steps_from"] + own[0]["agent_steps_to"]) // 2
            unsure.append({"middle": middle, "name": cell["name"]})
    # Names are in the order in which the shares are stacked: the first one is lowest.
    y = {"y": parts.names("name", list(openings.labels)[::-1], labelPadding=16)}
    told = tip(name="", score=".3f", low=".3f", high=".3f", count=",", x=",", x2=",")
    colour = parts.score_colour("score of the opening")
    squares: Rows = [{"name": name} for name in openings.labels]
    left = {"x": {"value": 0}, **y, "fill": openings.look()}
    layers = [
        layer(sure, "rect", {**openings.window(), **y, "color": colour, "tooltip": told}),
        layer(unsure, "point", {"x": openings.window("middle")["x"], **y}, **parts.HATCH),
        layer(squares, "square", left, size=55, opacity=1, xOffset=-9),
    ]
    return reader.panel({"layer": layers}, 0.8 * parts.PANEL if reader.width else 24 * len(squares))


def _score(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return the score of rows together with its 95% interval; empty: it says nothing."""
    count = sum(row["count"] for row in rows)
    if not count or any(row["score"] is None for row in rows):
        return {}
    points = sum(row["score"] * row["count"] for row in rows)
    low, high = wilson(points / count, count)
    if high - low > MAX_WIDTH:
        return {}
    return {"score": rounded(points / count, 4), "low": rounded(low, 3), "high": rounded(high, 3)}
