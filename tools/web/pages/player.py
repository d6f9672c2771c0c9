"""Page of one policy or ghost: its record, life, card, results, copies, checkpoints and events.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from arena.errors import ArenaError
from populations.inspection.documents.lives import life_of

from ..content import Block, Cell, Content, Row, Table, cell, facts, failed, moment, part, shown
from .asked import Asked, Document, Line, interval, lines_of, number, standing_lines
from .events import COLUMNS, MAX_SENTENCE, concerns, event_row
from .lineage import GENERATION_COLUMNS, generation_row
from .payoff import anchor_of, result_line

MAX_EVENTS = 100
MAX_RESULTS = 200
MAX_LIFE = 200
LIFE_COLUMNS = ("time", "agent steps", "generation", "what happened")
EMPTY: Mapping[str, Document] = {
    "payoff": {"payoff": []},
    "lineage": {"generations": [], "policies": []},
    "checkpoints": {"checkpoints": []},
    "events": {"events": []},
    "cards": {"cards": {}},
}
"""Documents that say nothing, in the place of those that cannot be made."""

VIEWS_OF_PLAYER = ("standings", *EMPTY)


def find_player(asked_name: str, names: dict[str, str]) -> str | None:
    """Return the player whose page has a name.

    A ghost and the policy that has the same weights share a page; it is the policy's.
    """
    return next((player for player, name in names.items() if name == asked_name), None)


def player_document(documents: Mapping[str, Document], player: str) -> Document:
    """Return all that is known about one player, from documents of its run.

    ``standing`` is its line of the standings, ``life`` what `arena league RUN why PLAYER` tells,
    ``card`` what `arena export` writes (null: its weights are not there), ``results`` those against
    each opponent, worst first; then its generations, checkpoints and events, oldest first.
    """
    standings = documents["standings"]
    standing = next(
        line
        for lines in standing_lines(standings).values()
        for line in lines
        if line["player"] == player
    )
    events = lines_of(documents["events"], "events")
    results = [line for line in lines_of(documents["payoff"], "payoff") if line["player"] == player]
    return {
        "run": standings["run"],
        "player": player,
        "standing": standing,
        "life": life_of(
            player, lineage=cast("Any", documents["lineage"]), events=cast("Any", events)
        ),
        "card": cast("Mapping[str, Line]", documents["cards"]["cards"]).get(player),
        "results": sorted(
            results,
            key=lambda line: (number(line["score"]) is None, number(line["score"]) or 0.0),
        ),
        "generations": [
            line
            for line in lines_of(documents["lineage"], "generations")
            if line["policy"] == player
        ],
        "checkpoints": [
            line
            for line in lines_of(documents["checkpoints"], "checkpoints")
            if line["policy"] == player or line["weights_digest"] == standing["weights"]
        ],
        "events": [line for line in events if concerns(line, player)],
    }


def player_page(asked: Asked, player: str) -> Content:
    """Return all that is known about one player."""
    documents = dict(asked.documents)
    missing: list[Block] = []
    for view, empty in EMPTY.items():
        try:
            asked.documents[view]
        except ArenaError as error:
            # What needs it has nothing to show, and the rest stands.
            documents[view] = empty
            missing.append(failed(shown(view), error))
    document = player_document(documents, player)
    blocks = [
        *missing,
        *part("Record", lambda: _record(asked, cast("Line", document["standing"]))),
        *part("Life", lambda: _life(document)),
        *part("Card", lambda: _card(asked, document)),
        *part("Results", lambda: _results(asked, document)),
        *part("Generations", lambda: _generations(asked, document)),
        *part("Checkpoints", lambda: _checkpoints(asked, document)),
        *part("Events", lambda: _events(asked, document)),
    ]
    return Content(title=shown(player), blocks=blocks)


def _record(asked: Asked, line: Line) -> Block:
    keys = ("kind", "role", "state", "generation", "agent_steps", "evaluated_agent_steps")
    values: dict[str, object] = {
        "rating": f"{shown(line['rating'])}, 95% {interval(line)}",
        "matches": f"{line['matches']:,}: {line['wins']:,} won, {line['draws']:,} drawn, "
        f"{line['losses']:,} lost",
        "score": line["score"],
        **{key.replace("_", " "): line[key] for key in keys},
        "parent": asked.player(line["parent"]),
        "weights": line["weights"],
        "checkpoint": line["checkpoint"],
        "exploitability": line["exploitability"],
        **{shown(key): value for key, value in cast("Line", line["hyperparameters"]).items()},
    }
    return Block(
        heading="Record",
        table=facts({key: value for key, value in values.items() if value is not None}),
    )


def _results(asked: Asked, document: Document) -> Block:
    """Return the results against every opponent, each as a line to copy."""
    keys = ("score", "matches", "wins", "draws", "losses", "mean_return")
    rows = [
        Row(
            anchor=anchor_of(asked, str(line["opponent"])),
            cells=[asked.player(line["opponent"]), *(cell(line[key]) for key in keys)],
            line=result_line(line),
        )
        for line in lines_of(document, "results")
    ]
    columns = ["opponent", "score", "matches", "wins", "draws", "losses", "return", "as text"]
    return Block(
        heading="Results, worst first",
        note="Evaluation matches. Copy takes a result as one line of text.",
        table=Table(
            columns=columns,
            rows=rows[:MAX_RESULTS],
            total=len(rows),
            csv=f"{asked.links.base}payoff.csv",
        ),
    )


def _life(document: Document) -> Iterator[Block]:
    """Yield what happened to a player and why."""
    told = lines_of(document, "life")
    if told:
        rows = [_told(line) for line in reversed(told[-MAX_LIFE:])]
        yield Block(
            heading="Life, the newest first",
            note="What happened to it and why. Gains of generations are by one fit of all "
            "checkpoints, what decided is by the fit of then.",
            table=Table(columns=LIFE_COLUMNS, rows=rows, total=len(told)),
        )


def _told(line: Line) -> Row:
    return Row(
        cells=[
            moment(line["time"]),
            cell(line["agent_steps"]),
            cell(line["generation"]),
            Cell(text=shown(line["sentence"], most=MAX_SENTENCE)),
        ]
    )


def _card(asked: Asked, document: Document) -> Iterator[Block]:
    """Yield a player's card, if its weights are there."""
    card = cast("Line | None", document["card"])
    if card is None:
        return
    yield Block(
        heading="Card",
        note="As arena export writes it for these weights.",
        table=facts(_card_facts(cast("Line", card["summary"]))),
    )
    yield from _played(asked, document, lines_of(card, "record"))
    ancestors = lines_of(card, "lineage")
    yield Block(
        heading="Ancestors of its weights, the nearest first",
        table=Table(
            columns=["policy", "generation", "agent steps", "weights"],
            rows=[
                Row(
                    cells=[
                        asked.player(line["policy"]),
                        cell(line["generation"]),
                        cell(line["agent_steps"]),
                        _digest(line["weights"]),
                    ]
                )
                for line in ancestors[:MAX_RESULTS]
            ],
            total=len(ancestors),
        ),
    )


RECORD_COLUMNS = (
    *("opponent", "mode", "seat", "matches", "distinct", "wins", "draws", "losses", "score"),
    *("return", "as text"),
)


def _played(asked: Asked, document: Document, lines: Sequence[Line]) -> Iterator[Block]:
    """Yield the matches that an export has played, if there is one of these weights."""
    keys = ("mode", "seat", "matches", "distinct", "wins", "draws", "losses", "score")
    rows = [
        Row(
            cells=[
                asked.player(line["opponent"]),
                *(cell(line[key]) for key in keys),
                cell(line["mean_return"]),
            ],
            line=result_line(
                {**line, "player": document["player"]},
                how=f" as {shown(line['seat'])}, {shown(line['mode'])}",
            ),
        )
        for line in lines
    ]
    if rows:
        yield Block(
            heading="Record of its export",
            note="Matches that arena export has played with these weights, against opponents that "
            "sample.",
            table=Table(columns=RECORD_COLUMNS, rows=rows[:MAX_RESULTS], total=len(rows)),
        )


def _card_facts(summary: Line) -> dict[str, object]:
    # What the record above has already.
    known = ("weights", "agent steps", "generation", "population")
    return {shown(key): value for key, value in summary.items() if key not in known}


def _generations(asked: Asked, document: Document) -> Iterator[Block]:
    """Yield the generations of a policy."""
    own = lines_of(document, "generations")
    if own:
        rows = [generation_row(asked, line) for line in reversed(own)]
        yield Block(
            heading="Generations and copies, the newest first",
            table=Table(columns=GENERATION_COLUMNS, rows=rows[:MAX_RESULTS], total=len(rows)),
        )


CHECKPOINT_COLUMNS = (
    *("player", "agent_steps", "generation", "learner_updates", "state", "pins", "digest"),
    "weights_digest",
)


def _checkpoints(asked: Asked, document: Document) -> Iterator[Block]:
    rows = lines_of(document, "checkpoints")
    if rows:
        yield Block(
            heading="Checkpoints, the newest first",
            table=Table(
                columns=[column.replace("_", " ") for column in CHECKPOINT_COLUMNS],
                rows=_checkpoint_rows(rows[::-1][:MAX_RESULTS]),
                total=len(rows),
                csv=f"{asked.links.base}checkpoints.csv",
            ),
        )


def _checkpoint_rows(lines: Sequence[Line]) -> list[Row]:
    return [
        Row(cells=[_checkpoint_cell(column, line[column]) for column in CHECKPOINT_COLUMNS])
        for line in lines
    ]


def _checkpoint_cell(column: str, value: object) -> Cell:
    if column == "pins":
        return cell(" ".join(cast("list[str]", value)))
    if column.endswith("digest"):
        return _digest(value)
    return cell(value)


def _digest(value: object) -> Cell:
    return Cell(text=str(value)[:16], title=str(value))


def _events(asked: Asked, document: Document) -> Iterator[Block]:
    found = lines_of(document, "events")[::-1]
    if found:
        yield Block(
            heading="Events about it, the newest first",
            table=Table(
                columns=COLUMNS,
                rows=[event_row(asked, one) for one in found[:MAX_EVENTS]],
                total=len(found),
                following=asked.links.page("events", player=str(document["player"])),
            ),
        )  # fmt: skip
