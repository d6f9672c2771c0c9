"""Views of what happened: events, the life of a player, matches, games, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from populations.views.parts import (
    MAX_CELL,
    Column,
    Document,
    Line,
    Picture,
    Room,
    Row,
    Section,
    Table,
    player,
    said,
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


GAMES = (
    Column("game", "game", is_label=True),
    Column("time", "time", "UTC", drop=2),
    Column("players", "versus", is_label=True, most=60),
    Column("points", "word", drop=1),
    Column("returns", "word", drop=3),
    Column("steps", "count"),
    Column("holds", "word", "weights kept", drop=4),
)


def games(document: Document, room: Room) -> Iterator[Section]:
    """Yield the games that are kept, the newest first."""
    rows = document["games"]
    none = "no games yet: each evaluation leaves some, if replays.keep is not 0"
    yield Section(
        title=Line("games"),
        body=Table(GAMES, rows) if rows else None,
        below=[] if rows else [Line(none)],
    )


SEATS = (
    Column("seat", "word", is_label=True),
    player("player"),
    Column("points", "value"),
    Column("return", "value"),
    Column("weights", "digest", drop=1),
)

DECISIONS = (
    Column("agent", "word", is_label=True),
    player("player"),
    Column("action", "value", is_label=True),
    Column("probability", "percents", "likely"),
    Column("value", "parameter"),
    Column("choices", "listed", "likeliest", drop=2, most=60),
    player("onlooker", "beside it", drop=1),
    Column("instead", "value", "its action", drop=1),
)


def game(document: Document, *, at: int | None = None) -> Iterator[Section]:
    """Yield who played, how it ended, and each step: what it showed, and who decided what.

    Args:
        document: Game that was told.
        at: The one step to show; None: all.
    """
    steps = document["steps"]
    turned = document["turned"]
    notes = [said(note) for note in document["notes"]]
    if turned is not None:
        notes.append(Line("what a player expected fell most after step {n}", {"n": turned}))
    yield Section(
        title=Line(
            "game {game} of {environment}, {n} steps, seed {seed}",
            {**document, "n": len(steps) - 1},
        ),
        body=Table(SEATS, document["seats"]),
        below=notes,
    )
    for step in steps if at is None else steps[at : at + 1]:
        yield _step(step, is_turn=step["step"] == turned)


def _step(step: Row, *, is_turn: bool) -> Section:
    picture = step.get("picture")
    decisions = [_decision(row) for row in step["decisions"]]
    rewards = {agent: reward for agent, reward in step["rewards"].items() if reward != 0.0}
    return Section(
        title=Line("step {step}", step),
        chart=None
        if picture is None
        else Picture(**{form: str(picture[form]) for form in ("text", "svg", "png")}),
        above=[Line("paid {rewards}", {"rewards": rewards})] if rewards else [],
        body=Table(DECISIONS, decisions) if decisions else None,
        is_alert=is_turn,
    )


def _decision(row: Row) -> Row:
    beside = row.get("beside") or {}
    choices = row.get("choices", ())
    return {
        **row,
        "choices": {str(one["action"]): round(one["probability"], 2) for one in choices} or None,
        "onlooker": beside.get("player"),
        "instead": beside.get("action"),
    }
