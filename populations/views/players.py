"""Views of single players: the champions, and the history of any policy or ghost."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.types import PlayerId
from populations.league.names import find_player
from populations.views.notices import told_of
from populations.views.parts import (
    Column,
    Document,
    Line,
    Room,
    Row,
    Section,
    Table,
    hidden,
    picked,
    player,
    said,
)
from populations.views.questions.lives import KINDS, entries, generations_of, is_about
from populations.views.sentences import event_document
from populations.views.view import Operand, View, listed

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

OPPONENTS = 10
"""Number of a champion's opponents that are shown by default."""

LED = "leads| since {since:time} UTC|, after {changes} changes of the lead"
"""Template of a champion's lead; after a rewind the time of a new champion may be unknown."""

NEXT = "next: {next:player}, {lead:elo} Elo behind|, 95% {lead_low:signed}..{lead_high:signed}"
STEP = "{policy:player} ({cause} at {begin:count})"

CAUSES = {"exploit": "copy", "explore": "change"}
"""Words for causes of generations; other causes are shown as they are."""


def champion_document(run: Inspection, population: str | None) -> Document:
    """Return the champion of each population that has one.

    ``lead`` is its rating difference to the next player with other weights, by one fit, with the
    interval of the difference. ``opponents`` are its opponents in evaluation, the worst score
    first, with Wilson's 95% interval. ``unproven`` is null if it is proved better than untrained
    weights (`populations.views.questions.champions`). ``line`` has the generations that trained its
    weights, oldest first.
    """
    from populations.league.standings import RATING
    from populations.views.questions import champions as of

    found, names, cells = run.standings(), run.names(), run.cells()
    spans = of.champions_of(run, population)
    champions = []
    for name, best in run.champions(population).items():
        history = [span for span in spans if span["population"] == name]
        last = history[-1] if history else {}
        own = names[name, best.weights or best.player]
        champions.append(
            {
                "population": name,
                **picked(best, "player", "generation", "agent_steps", "evaluated_agent_steps"),
                **picked(best, "checkpoint", "weights", *RATING),
                # The time is null if the journal has no event yet about this champion.
                "since": last.get("since") if last.get("player") == best.player else None,
                "changes": max(len(history) - 1, 0),
                **of.lead(name, best, found[name], run.rated),
                "anchor": of.anchor_score(run, name, best),
                "unproven": of.unproven(run, name, best),
                "history": history,
                "opponents": of.opponents(cells, population=name, player=own),
                "line": of.line_of(run, best),
            }
        )
    return {"champions": champions}


RESULTS = (
    player("opponent"),
    Column("matches", "count"),
    Column("score", "share", is_label=True),
    Column("score", "shares", "95%"),
    Column("wins", "count", drop=1),
    Column("draws", "count", drop=2),
    Column("losses", "count", drop=3),
)


def opponent_rows(document: Document) -> list[Row]:
    """Return a row for each opponent of each champion."""
    return [
        {"population": one["population"], "player": one["player"], **row}
        for one in document["champions"]
        for row in one["opponents"]
    ]


def champion(document: Document, room: Room) -> Iterator[Section]:
    """Yield each champion with the time and size of its lead, its origin, and its results."""
    champions = document["champions"]
    if not champions:
        none = "no champion yet: there is one after the first fit of evaluation matches"
        yield Section(below=[Line(none)])
    for one in champions:
        lines = [*map(said, told_of(one)), Line(LED, one)]
        if one.get("next") is not None:
            lines.append(Line(NEXT, one))
        if line := one.get("line", ()):
            path = [
                Line(STEP, {**part, "cause": CAUSES.get(str(part["cause"]), part["cause"])})
                for part in line
            ]
            lines.append(Line("its line of weights: {path:path}", {"path": path}))
        yield Section(
            title=Line(
                "champion of {population}: {player:player}, {rating:elo} Elo, "
                "95% {rating:interval}, {agent_steps:count} agent steps",
                one,
            ),
            below=lines,
        )
        opponents = one["opponents"]
        shown = opponents if room.is_wide else opponents[: room.limit or OPPONENTS]
        yield Section(
            title=Line("results, the worst score first"),
            body=Table(RESULTS, shown),
            below=hidden(len(opponents) - len(shown), "more opponents"),
        )


def why_document(run: Inspection, population: str | None, *, player: str | None = None) -> Document:
    """Return the history of a player, oldest first.

    An entry has ``time``, ``agent_steps`` (null if its event has none), ``generation``, ``kind``
    (of the event; ``gained`` sums up a generation), ``sentence`` and ``data``. The history of a
    ghost is that of its policy until its agent steps, and the events about the ghost.

    Raises:
        ConfigError: If no player is named, or the run has no such player.
    """
    if player is None:
        raise ConfigError("the view why needs a player, such as player/p003 or p003@120000")
    subject = find_player(player, run.tables, population=population)
    tables = run.rated.tables
    row = tables.policies[subject.policy]
    events = [
        event_document(event)
        for event in run.reader.events(kinds=KINDS)
        if is_about({**event.data, "kind": event.kind, "subject": event.subject}, subject)
    ]
    kind = "ghost" if PlayerId(subject.player) in tables.ghosts else "checkpoint"
    kind = "policy" if subject.agent_steps is None else kind
    return {
        "player": subject.player,
        **picked(row, "population", "policy"),
        "kind": kind,
        **picked(row, "role", "state", "generation"),
        "agent_steps": row.agent_steps if subject.agent_steps is None else subject.agent_steps,
        "entries": list(entries(events, subject, generations=generations_of(run))),
    }


WHY = (
    Column("time", "time", "UTC", is_label=True),
    Column("agent_steps", "count", "steps", is_label=True),
    Column("generation", title="gen", is_label=True),
    Column("sentence", "sentence", "what happened"),
)


LIFE = (
    "{player:player}: {kind}, role {role}, {state}, generation {generation}, {agent_steps:count} "
    "agent steps"
)


VIEWS: dict[str, View] = {
    "champion": View(
        document=champion_document, flat=opponent_rows, sections=champion, is_fitted=True
    ),
    "why": View(
        document=why_document,
        sections=listed(LIFE, WHY, itemgetter("entries")),
        limits="entries",
        keeps_last=True,
        lines=2,
        operand=Operand("player", "player", "p003"),
        is_whole=False,
    ),
}
