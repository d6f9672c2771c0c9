"""Page of one policy or ghost: its record, life, card, results, copies, checkpoints and events.

Tests: `tests/tools/web/test_player.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from arena.errors import ArenaError
from populations.records.games import badness
from populations.views.league import RECORD, STANDINGS
from populations.views.log import CHECKPOINTS, GAMES, checkpoint_rows
from populations.views.parts import (
    Column,
    Document,
    Line,
    Pairs,
    Row,
    Section,
    Table,
    player,
)
from populations.views.players import WHY
from populations.views.questions.lives import life_of

from ...league.narrowing import concerns
from ...show.html import Block, Cell, failed
from .league import RESULT, results
from .log import event_table
from .page_request import PageRequest

EMPTY: Mapping[str, Document] = {
    "payoff": {"payoff": []},
    "lineage": {"generations": [], "policies": []},
    "games": {"games": []},
    "checkpoints": {"checkpoints": []},
    "events": {"events": []},
    "cards": {"cards": {}},
}
"""Documents that say nothing, in the place of those that cannot be made."""

MAX_LIFE = 100
MAX_EVENTS = 50
MAX_GAMES = 10
GAMES_OF = "Games that are kept, its worst first"
CHECKPOINTS_OF = "Checkpoints, the newest first"
EVENTS_OF = "Events about it, the newest first"
VIEWS_OF_PLAYER = ("standings", *EMPTY)

GENERATIONS = (
    Column("generation"),
    Column("cause", "word"),
    player("parent", "weights of"),
    Column("agent_steps_begin", "count", "begins at"),
    Column("agent_steps_end", "count", "ends at"),
    Column("elo_begin", "elo", "Elo at begin"),
    Column("elo_end", "elo", "Elo at end"),
    Column("elo_gain", "signed", "gained"),
    Column("copies"),
)

KEPT = (*CHECKPOINTS, Column("weights_digest", "digest", "weights"))

ANCESTORS = (
    player("policy"),
    Column("generation"),
    Column("agent_steps", "count", "agent steps"),
    Column("weights", "digest"),
)


def find_player(asked_name: str, names: Mapping[str, str]) -> str | None:
    """Return the player whose page has a name.

    A ghost and the policy that has the same weights share a page; it is the policy's.
    """
    return next((player for player, name in names.items() if name == asked_name), None)


def player_document(documents: Mapping[str, Document], name: str) -> Document:
    """Return all that is known about one player, from documents of its run.

    ``standing`` is its line of the standings, ``life`` what `arena league RUN why PLAYER` tells,
    ``card`` what `arena export` writes (null: its weights are not there), ``results`` those against
    each opponent, and ``games`` those that are kept, worst first; then its generations, checkpoints
    and events, oldest first.
    """
    rows = {view: documents[view] for view in VIEWS_OF_PLAYER}
    standing = next(
        line
        for lines in rows["standings"]["populations"].values()
        for line in lines
        if line["player"] == name
    )
    events = rows["events"]["events"]
    return {
        "run": rows["standings"]["run"],
        "player": name,
        "standing": standing,
        "life": life_of(name, generations=rows["lineage"]["generations"], events=events),
        "card": rows["cards"]["cards"].get(name),
        "results": sorted(
            (line for line in rows["payoff"]["payoff"] if line["player"] == name),
            key=lambda line: (line["score"] is None, line["score"] or 0.0),
        ),
        "games": sorted(
            (one for one in rows["games"]["games"] if _endings(one, name, standing)),
            key=lambda one: min(_endings(one, name, standing)),
        ),
        "generations": [one for one in rows["lineage"]["generations"] if one["policy"] == name],
        "checkpoints": [
            one
            for one in rows["checkpoints"]["checkpoints"]
            if one["policy"] == name or one["weights_digest"] == standing["weights"]
        ],
        "events": [line for line in events if concerns(line, name)],
    }


def _endings(game: Row, name: str, standing: Row) -> list[tuple[float, float, int]]:
    """Return the sort keys, as of `worst_games`, of how a game ended where a player's rated weights
    sat; of a policy without any, all of its weights.
    """
    weights = standing["weights"]
    places = zip(game["players"], game["weights"], game["margins"], game["returns"], strict=True)
    return [
        badness(margin, paid, game["steps"])
        for player, digest, margin, paid in places
        if (digest == weights if weights else player.partition("@")[0] == name)
    ]


def player_page(asked: PageRequest, name: str) -> Iterator[Block]:
    """Yield all that is known about one player."""
    documents = dict(asked.documents)
    for view, empty in EMPTY.items():
        try:
            asked.documents[view]
        except ArenaError as error:
            # Sections without their document stay empty; the other sections are shown.
            documents[view] = empty
            yield failed(view.capitalize(), error)
    found = player_document(documents, name)
    newest = {key: found[key][::-1] for key in ("life", "generations", "checkpoints", "events")}
    card = found["card"] or {"summary": {}, "record": [], "lineage": []}
    played = Table(RECORD, [{**row, "player": name} for row in card["record"]], copied=PLAYED)
    parts: Sequence[tuple[str, str, Table | Pairs, str]] = (
        ("Record", "", _record(found["standing"]), ""),
        ("Life, the newest first", GAINS, Table(WHY, newest["life"][:MAX_LIFE]), ""),
        ("Card", "As arena export writes it for these weights.", _card(card["summary"]), ""),
        ("Record of its export", "Against opponents that sample.", played, ""),
        ("Ancestors of its weights, the nearest first", "", Table(ANCESTORS, card["lineage"]), ""),
        ("Results, worst first", "Evaluation matches.", results(found["results"]), "payoff"),
        (GAMES_OF, "", Table(GAMES, found["games"][:MAX_GAMES]), "games"),
        (
            "Generations and copies, the newest first",
            "",
            Table(GENERATIONS, newest["generations"]),
            "",
        ),
        (CHECKPOINTS_OF, "", Table(KEPT, checkpoint_rows(newest)), "checkpoints"),
        (EVENTS_OF, "", event_table(newest["events"][:MAX_EVENTS]), "events"),
    )
    for heading, about, body, csv in parts:
        if body.rows:
            section = Section(title=Line(heading), about=about, body=body)
            yield from asked.part(heading, partial(list, [section]), csv=csv)
    links = asked.links
    yield Block(
        below=[
            [Cell("all events about it", href=links.page("events", player=name))],
            [Cell("all its games that are kept", href=links.page("games", player=name))],
        ]
    )


PLAYED = RESULT.replace(":", " as {seat}, {mode}:", 1)

GAINS = (
    "What happened to it and why. Gains of generations are by one fit of all checkpoints, what "
    "decided is by the fit of then."
)


# New columns of `populations.views.league.STANDINGS` must be added here to be shown.
FIGURES = (
    *("rating", "matches", "score", "kind", "role", "state", "generation", "agent_steps"),
    *("evaluated_agent_steps", "parent", "weights", "checkpoint", "exploitability"),
)
BEHIND = {
    "rating": "|, 95% {rating:interval}",
    "matches": ": {wins:count} won, {draws:count} drawn, {losses:count} lost",
}
"""Text behind a figure, by its key."""


def _record(line: Row) -> Pairs:
    # Two columns are about a rating; the reversed order keeps the kind of the first one.
    kinds = {one.key: one.kind for one in reversed(STANDINGS)}
    kinds["evaluated_agent_steps"] = kinds["agent_steps"]
    rows = [
        (key.replace("_", " "), Line(f"{{{key}:{kinds.get(key, 'word')}}}{more}", line))
        for key in FIGURES
        if line[key] is not None
        for more in [BEHIND.get(key, "")]
    ]
    rows += [
        (name, Line("{value:parameter}", {"value": value}))
        for name, value in line["hyperparameters"].items()
    ]
    return Pairs(rows)


def _card(summary: Row) -> Pairs:
    # The record above already shows these.
    known = ("weights", "agent steps", "generation", "population")
    return Pairs(
        [(key, Line("{value}", {"value": one})) for key, one in summary.items() if key not in known]
    )
