"""Views of what happened: events, the life of a player, matches, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from populations.views.parts import (
    MAX_CELL,
    Column,
    Document,
    Line,
    Room,
    Row,
    Section,
    Table,
    player,
)

KIND_WIDTH = 100
"""Characters of a line from which on kinds have a column."""

EVENTS = (
    Column("sequence", title="#", is_label=True),
    Column("time", "time", "UTC", is_label=True),
    Column("kind", "word", is_label=True),
    Column("sentence", "event", "what happened"),
)


def has_kinds(room: Room) -> bool:
    """Return whether kinds of events have a column."""
    return room.width >= KIND_WIDTH or room.is_wide


def events(document: Document, room: Room) -> Iterator[Section]:
    """Yield each decision as a sentence, oldest first."""
    rows = document["events"]
    dates = sorted({str(row["time"])[:10] for row in rows if row["time"]})
    columns = [one for one in EVENTS if one.key != "kind" or has_kinds(room)]
    title = Line("events {days}", {"days": " to ".join(dict.fromkeys(dates[:1] + dates[-1:]))})
    yield Section(title=title if dates else Line("events"), body=Table(columns, rows))


WHY = (
    Column("time", "time", "UTC", is_label=True),
    Column("agent_steps", "count", "steps", is_label=True),
    Column("generation", title="gen", is_label=True),
    Column("sentence", "sentence", "what happened"),
)


def why(document: Document, room: Room) -> Iterator[Section]:
    """Yield what a player is, and what happened to it, oldest first."""
    yield Section(
        title=Line(
            "{player:player}: {kind}, role {role}, {state}, generation {generation}, "
            "{agent_steps:count} agent steps",
            document,
        ),
        body=Table(WHY, document["entries"]),
    )


CHECKPOINTS = (
    player("policy"),
    Column("agent_steps", title="steps", is_label=True),
    Column("generation", title="gen"),
    Column("learner_updates", title="updates"),
    Column("state", "word"),
    Column("pins", "word", drop=1),
    # Commands take a name; the digest tells apart what has none.
    Column("digest", "digest", is_label=True),
)


def checkpoints(document: Document, room: Room) -> Iterator[Section]:
    """Yield the checkpoints, those that are kept first, then the newest."""
    rows = [{**row, "pins": " ".join(row["pins"]) or None} for row in document["checkpoints"]]
    title = Line("checkpoints: kept ones first, then the newest")
    yield Section(title=title, body=Table(CHECKPOINTS, rows))


def newest_checkpoints(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return checkpoints in the order in which they are shown."""
    newest = sorted(rows, key=lambda row: -row["assignment_id"])
    return sorted(newest, key=lambda row: row["state"] != "present")


def newest(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return rows that are stored oldest first with the newest first."""
    return list(reversed(rows))


MATCHES = (
    Column("sequence", title="#", is_label=True),
    Column("assignment", drop=2, is_label=True),
    Column("kind", "word"),
    Column("players", "versus", is_label=True, most=2 * MAX_CELL),
    Column("matches", is_label=True),
    Column("wins-draws-losses", title="w-d-l", is_label=True),
    Column("mean_length", title="length", drop=1, is_label=True),
    Column("first_return", title="first's return", drop=3),
    Column("distinct", drop=4),
)


def matches(document: Document, room: Room) -> Iterator[Section]:
    """Yield the results of assignments, the newest first."""
    rows = [
        {
            **row,
            "players": [*row["seats"].values()],
            "wins-draws-losses": _record(row["pairs"]),
            "first_return": row["mean_return"][0],
        }
        for row in document["tallies"]
    ]
    title = Line("matches: newest first, players in seats' order")
    yield Section(title=title, body=Table(MATCHES, rows))


def _record(pairs: Sequence[Row]) -> str | None:
    """Return the result of a game of two; None: there are more."""
    if len(pairs) != 1:
        return None
    return "-".join(f"{pairs[0][key]:g}" for key in ("wins", "draws", "losses"))
