"""Views of the history of a run: games, checkpoints, events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from arena.drawings.picture import Picture
from arena.types import ghost_id, is_external
from populations.records.games import margin, populations_of
from populations.views.parts import (
    Column,
    Document,
    Line,
    Room,
    Row,
    Section,
    Table,
    picked,
    player,
    said,
)
from populations.views.view import View, listed

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

KIND_WIDTH = 100
"""Width of the screen, in characters, from which the kinds of events have a column."""


def events_document(
    run: Inspection, population: str | None, *, kinds: Sequence[str] | None = None
) -> Document:
    """Return every event with its reason and data, oldest first.

    Args:
        run: Run to read.
        population: Population of the events' subjects; None for all.
        kinds: Kinds of events to return; None for all.
    """
    return {"events": run.events(population, kinds=kinds)}


EVENTS = (
    Column("sequence", title="#", is_label=True),
    Column("time", "time", "UTC", is_label=True),
    Column("kind", "word", is_label=True),
    Column("sentence", "event", "what happened"),
)


def has_kinds(room: Room) -> bool:
    """Return whether there is room for a column with the kinds of events."""
    return room.width >= KIND_WIDTH or room.is_wide


def events(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table of events as sentences, oldest first."""
    rows = document["events"]
    dates = sorted({str(row["time"])[:10] for row in rows if row["time"]})
    columns = [one for one in EVENTS if one.key != "kind" or has_kinds(room)]
    title = Line("events {days}", {"days": " to ".join(dict.fromkeys(dates[:1] + dates[-1:]))})
    yield Section(title=title if dates else Line("events"), body=Table(columns, rows))


def checkpoints_document(run: Inspection, population: str | None) -> Document:
    """Return every recorded checkpoint and ghost; ``pins`` has reasons to retain a checkpoint."""
    from populations.views.questions.checkpoints import pins_of

    pins = pins_of(run.league, section=run.run_file.config.checkpoints)
    checkpoints = [
        # This is the name that commands accept; a removed checkpoint has none.
        {
            "player": ghost_id(row.policy, agent_steps=row.agent_steps)
            if row.key in pins
            else None,
            **asdict(row),
            "pins": list(pins.get(row.key, ())),
        }
        for row in run.tables.checkpoints.values()
        # A policy's id consists of its population and its number.
        if population in (None, row.policy.split("/")[0])
    ]
    ghosts = [
        asdict(row)
        for row in run.tables.ghosts.values()
        if population in (None, row.population) and not row.doomed
    ]
    return {"checkpoints": checkpoints, "ghosts": ghosts}


CHECKPOINTS = (
    player("policy"),
    Column("agent_steps", title="steps", is_label=True),
    Column("generation", title="gen"),
    Column("learner_updates", title="updates"),
    Column("state", "word"),
    Column("pins", "word", drop=1),
    # Removed checkpoints have no name, so the digest identifies them.
    Column("digest", "digest", is_label=True),
)


def checkpoint_rows(document: Document) -> list[Row]:
    """Return a row for each checkpoint, with the columns that are shown."""
    return [{**row, "pins": " ".join(row["pins"]) or None} for row in document["checkpoints"]]


def newest_checkpoints(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return checkpoints in the order of the view: present ones first, then the newest."""
    return sorted(rows, key=lambda row: (row["state"] != "present", -row["assignment_id"]))


def games_document(run: Inspection, population: str | None) -> Document:
    """Return the recorded evaluation games, the newest first.

    ``margins`` has, for each player in order, the points of its side minus those of the best other
    side; in cooperation, the return.
    """
    seats = run.league.seats
    games: list[Row] = [
        {
            **picked(row, "game", "time"),
            "seats": [seats[seat].name for seat in row.seats],
            "players": list(row.players),
            "weights": [None if is_external(name) else name for name in row.entrants],
            "points": list(row.points),
            "returns": list(row.returns),
            "margins": [margin(row, place, seats=seats) for place in range(len(row.seats))],
            **picked(row, "steps", "holds"),
        }
        for row in reversed(run.tables.games.values())
        if population is None or population in populations_of(row, seats=seats)
    ]
    return {"games": games}


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
    """Yield a table of the recorded games, the newest first."""
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
    Column("action", "word", "move", is_label=True),
    Column("probability", "percents", "likely"),
    Column("value", "parameter"),
    Column("choices", "listed", "likeliest", drop=2, most=60),
    player("onlooker", "beside it", drop=1),
    Column("instead", "word", "its move", drop=1),
)


def game(document: Document, *, at: int | None = None) -> Iterator[Section]:
    """Yield the players and result of a game, and each step with its picture and decisions.

    Args:
        document: Document of a replayed game.
        at: Number of the step to show; None for all steps.
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
    moves = step.get("moves", {})
    decisions = [_decision(row, moves.get(row["agent"], {})) for row in step["decisions"]]
    rewards = {agent: reward for agent, reward in step["rewards"].items() if reward != 0.0}
    return Section(
        title=Line("step {step}", step),
        chart=None if picture is None else Picture(**picture),
        above=[Line("paid {rewards}", {"rewards": rewards})] if rewards else [],
        body=Table(DECISIONS, decisions) if decisions else None,
        is_alert=is_turn,
    )


def _decision(row: Row, moves: Mapping[str, str]) -> Row:
    def name(action: object) -> object:
        # Without a drawing of the game, actions have no names, only numbers.
        return moves.get(str(action), action)

    beside = row.get("beside") or {}
    choices = row.get("choices", ())
    return {
        **row,
        "action": name(row["action"]),
        "choices": {str(name(one["action"])): round(one["probability"], 2) for one in choices}
        or None,
        "onlooker": beside.get("player"),
        "instead": name(beside.get("likeliest")),
    }


VIEWS: dict[str, View] = {
    "games": View(
        document=games_document,
        has_page=True,
        sections=games,
        takes={"--player": ""},
        limits="games",
    ),
    "checkpoints": View(
        document=checkpoints_document,
        sections=listed(
            "checkpoints: kept ones first, then the newest", CHECKPOINTS, checkpoint_rows
        ),
        limits="checkpoints",
        order=newest_checkpoints,
    ),
    "events": View(
        document=events_document,
        has_page=True,
        sections=events,
        takes={"--kind": "kinds", "--since": "", "--player": ""},
        limits="events",
        keeps_last=True,
        lines=2,
    ),
}
