"""Page of one policy or ghost: its record, life, card, results, copies, checkpoints and events.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from populations.inspection.documents.lives import life_of

from ..content import Block, Cell, Content, Row, Table, cell, facts, moment, shown
from .asked import Asked, Line, interval, lines_of, number, standing_lines
from .events import COLUMNS, MAX_SENTENCE, concerns, event_row
from .lineage import GENERATION_COLUMNS, generation_row
from .payoff import anchor_of, result_line

MAX_EVENTS = 100
MAX_RESULTS = 200
MAX_LIFE = 200
LIFE_COLUMNS = ("time", "agent steps", "generation", "what happened")
VIEWS_OF_PLAYER = ("standings", "payoff", "lineage", "checkpoints", "events", "cards")


def find_player(asked_name: str, names: dict[str, str]) -> str | None:
    """Return the player whose page has a name.

    A ghost and the policy that has the same weights share a page; it is the policy's.
    """
    return next((player for player, name in names.items() if name == asked_name), None)


def player_page(asked: Asked, player: str) -> Content:
    """Return all that is known about one player."""
    line = next(
        line
        for lines in standing_lines(asked.documents["standings"]).values()
        for line in lines
        if line["player"] == player
    )
    blocks = [
        _record(asked, line),
        *_life(asked, player),
        *_card(asked, player),
        _results(asked, player),
        *_generations(asked, player),
        *_checkpoints(asked, line),
        *_events(asked, player),
    ]
    return Content(title=shown(player), blocks=blocks)


def _record(asked: Asked, line: Line) -> Block:
    keys = ("kind", "role", "state", "generation", "agent_steps", "evaluated_agent_steps")
    values: dict[str, object] = {
        "rating": f"{shown(line['rating'])}, 95% {interval(line)}",
        "matches": f"{line['matches']:,}: {line['wins']:,} won, {line['draws']:,} drawn, "
        f"{line['losses']:,} lost",
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


def _results(asked: Asked, player: str) -> Block:
    """Return the results against every opponent, worst first, each as a line to copy."""
    lines = [
        line for line in lines_of(asked.documents["payoff"], "payoff") if line["player"] == player
    ]
    lines.sort(key=lambda line: (number(line["score"]) is None, number(line["score"]) or 0.0))
    keys = ("score", "matches", "wins", "draws", "losses", "mean_return")
    rows = [
        Row(
            anchor=anchor_of(asked, str(line["opponent"])),
            cells=[asked.player(line["opponent"]), *(cell(line[key]) for key in keys)],
            line=result_line(line),
        )
        for line in lines
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


def _life(asked: Asked, player: str) -> Iterator[Block]:
    """Yield what happened to a player and why, as `arena league RUN why PLAYER` tells it."""
    told = life_of(
        player,
        lineage=cast("Any", asked.documents["lineage"]),
        events=cast("Any", lines_of(asked.documents["events"], "events")),
    )
    if told:
        rows = [_told(line) for line in reversed(told[-MAX_LIFE:])]
        yield Block(
            heading="Life, the newest first",
            note="What happened to it and why; Elo by one fit of all checkpoints.",
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


def _card(asked: Asked, player: str) -> Iterator[Block]:
    """Yield a player's card, if its weights are there."""
    cards = cast("Mapping[str, Line]", asked.documents["cards"]["cards"])
    card = cards.get(player)
    if card is None:
        return
    yield Block(
        heading="Card",
        note="As arena export writes it for these weights, which plays a record against bots and "
        "ghosts, too.",
        table=facts(_card_facts(cast("Line", card["summary"]))),
    )
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


def _card_facts(summary: Line) -> dict[str, object]:
    # What the record above has already.
    known = ("weights", "agent steps", "generation", "population")
    return {shown(key): value for key, value in summary.items() if key not in known}


def _generations(asked: Asked, player: str) -> Iterator[Block]:
    """Yield the generations of a policy."""
    lines = lines_of(asked.documents["lineage"], "generations")
    own = [line for line in lines if line["policy"] == player]
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


def _checkpoints(asked: Asked, line: Line) -> Iterator[Block]:
    rows = [
        one
        for one in lines_of(asked.documents["checkpoints"], "checkpoints")
        if one["policy"] == line["player"] or one["weights_digest"] == line["weights"]
    ]
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


def _events(asked: Asked, player: str) -> Iterator[Block]:
    found = [
        line
        for line in reversed(lines_of(asked.documents["events"], "events"))
        if concerns(line, player)
    ]
    if found:
        yield Block(
            heading="Events about it, the newest first",
            table=Table(
                columns=COLUMNS,
                rows=[event_row(asked, one) for one in found[:MAX_EVENTS]],
                total=len(found),
                following=asked.links.page("events", player=player),
            ),
        )  # fmt: skip
