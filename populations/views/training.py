"""Views of what training does: ratings, hyperparameters, metrics and openings over agent steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from populations.views.parts import Column, Document, Line, Room, Row, Section, Table, player

LAST_CHANGES = 5
"""Changes of hyperparameters that are shown."""

CURVE = 48
"""Most characters of a curve."""

RATINGS = (
    player("player"),
    Column("curve", "curve", is_label=True, most=CURVE),
    Column("first", "error", is_label=True),
    Column("best", "error", is_label=True),
    Column("at", "count", is_label=True),
    Column("last", "error", is_label=True),
    Column("generation", title="gen", is_label=True),
    Column("copies", is_label=True),
    Column("points", drop=1, is_label=True),
)


def rating_rows(document: Document) -> list[Row]:
    """Return the points of all curves."""
    populations = document["populations"]
    return [
        {"population": name, "player": line["player"], **point}
        for name, lines in populations.items()
        for line in lines
        for point in line["points"]
    ]


def ratings(document: Document, room: Room) -> Iterator[Section]:
    """Yield a curve per policy with its best and its last rating, and the champions."""
    for name, lines in document["populations"].items():
        points = [point for line in lines for point in line["points"]]
        if not points:
            none = Line("ratings of {name}: none yet; they need evaluation matches", {"name": name})
            yield Section(below=[none])
            continue
        every = [point["rating"] for point in points]
        scale = {
            "name": name,
            "low": min(every),
            "high": max(every),
            "most": max(point["agent_steps"] for point in points),
        }
        rows = [_rating_row(line, scale) for line in lines if line["points"]]
        rows.sort(key=lambda row: -row["last"]["rating"])
        yield Section(
            title=Line(
                "ratings of {name} by one fit: curves from {low:elo} to {high:elo} over "
                "{most:count} agent steps",
                scale,
            ),
            body=Table(RATINGS, rows),
            below=[Line("c: copied another policy   m: hyperparameters changed")],
        )
    spans = document.get("champions", ())
    if leaders := [_leader(spans, name) for name in dict.fromkeys(s["population"] for s in spans)]:
        yield Section(below=leaders)


def _rating_row(line: Row, scale: Row) -> Row:
    points = line["points"]
    best = max(points, key=lambda point: point["rating"])
    causes = {point["generation"]: point["cause"] for point in points}
    return {
        "player": line["player"],
        "curve": {**scale, "points": points},
        "first": points[0],
        "best": best,
        "at": best["agent_steps"],
        "last": points[-1],
        "generation": points[-1]["generation"],
        "copies": sum(1 for cause in causes.values() if cause == "exploit"),
        "points": len(points),
    }


def _leader(spans: Sequence[Row], population: object) -> Line:
    """Return who leads a population, since when, and how many led it before."""
    own = [span for span in spans if span["population"] == population]
    until = "now" if own[-1]["until"] is None else "{until:time} UTC"
    before = ", after {changes} changes" if len(own) > 1 else ""
    return Line(
        "champion of {population}: {player:player}, from {since:time} UTC until "
        f"{until}{before}",
        {**own[-1], "changes": len(own) - 1},
    )


def hyperparameter_rows(document: Document) -> list[Row]:
    """Return a row per policy: its values, and factors of schedules."""
    policies = document["policies"]
    factors = document.get("factors", {})
    return [
        {
            "policy": name,
            **values,
            **{f"{key}_factor": factor for key, factor in factors.get(name, {}).items()},
        }
        for name, values in policies.items()
    ]


def hyperparameters(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table of the current values, and lines about the last changes."""
    rows = hyperparameter_rows(document)
    keys = dict.fromkeys(key for row in rows for key in row if key != "policy")
    columns = [
        player("policy"),
        # The last ones are left out first.
        *(Column(key, "parameter", drop=place) for place, key in enumerate(keys, 1)),
    ]
    yield Section(title=Line("hyperparameters now"), body=Table(columns, rows))
    changes = [
        event
        for event in document.get("changes", ())
        if event.get("new") is not None and event.get("old") is not None
    ]
    earlier = len(changes) - LAST_CHANGES
    hidden = Line("{n} earlier changes hidden", {"n": earlier}, hint="events --kind explored ...")
    if changes:
        yield Section(
            title=Line("last changes (times UTC)"),
            below=[*map(_change, changes[-LAST_CHANGES:]), *([hidden] if earlier > 0 else [])],
        )


def _change(event: Row) -> Line:
    old, new = event["old"], event["new"]
    differences = [
        Line("{key} {old:parameter} → {new:parameter}", {"key": k, "old": old.get(k), "new": v})
        for k, v in new.items()
        if old.get(k) != v
    ]
    donor = " {donor:player}" if event.get("donor") else ""
    at = " at {agent_steps:count}" if event.get("agent_steps") is not None else ""
    return Line(
        f"{{time:time}} {{subject:player}} {{kind}}{donor}{at}: {{differences:lines}}",
        {**event, "differences": differences or [Line("nothing")]},
    )


METRICS = (
    player("policy"),
    Column("agent_steps", drop=1),
    Column("metric", "word", drop=1),
    Column("value", drop=1),
)


def metric_rows(document: Document) -> list[Row]:
    """Return a row for each number."""
    return [
        {
            "policy": line["policy"],
            "agent_steps": line["agent_steps"],
            "metric": name,
            "value": value,
        }
        for line in document["metrics"]
        for name, value in line.items()
        if name not in ("policy", "agent_steps")
    ]


def metrics(document: Document, room: Room) -> Iterator[Section]:
    """Yield what training has measured, the newest last."""
    yield Section(title=Line("metrics"), body=Table(METRICS, metric_rows(document)))


OPENINGS = (
    Column("seat", "word", is_label=True),
    player("player"),
    Column("agent_steps_from", "count", "from"),
    Column("matches", "count"),
    Column("label", "word", "first", is_label=True),
    Column("share", "share"),
    Column("share_low", "share", "low", drop=2),
    Column("share_high", "share", "high", drop=2),
    Column("score", "share"),
    Column("score_low", "share", "low", drop=1),
    Column("score_high", "share", "high", drop=1),
)


def openings(document: Document, room: Room) -> Iterator[Section]:
    """Yield the shares and scores of first decisions, the newest window last."""
    title = Line("openings: first decisions over agent steps; no player: all policies")
    rows = document["openings"]
    yield Section(title=title, body=Table(OPENINGS, rows))
