"""Views of games that are kept: the list of them, and one of them step by step."""

from __future__ import annotations

from collections.abc import Iterator

from populations.views.parts import (
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
        above=[Line("paid {rewards:listed}", {"rewards": rewards})] if rewards else [],
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
