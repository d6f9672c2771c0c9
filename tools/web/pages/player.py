"""Page of one policy or ghost: its record, results, copies, checkpoints, events and card.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from ..content import Block, Cell, Content, Row, Table, cell, facts, shown
from .asked import Asked, Line, interval, lines_of, number, standing_lines
from .events import COLUMNS, concerns, event_row
from .lineage import GENERATION_COLUMNS, generation_row
from .payoff import anchor_of, result_line

MAX_EVENTS = 100
MAX_RESULTS = 200
VIEWS_OF_PLAYER = ("standings", "payoff", "lineage", "checkpoints", "events")


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
        _results(asked, player),
        *_life(asked, player),
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
        return Cell(text=str(value)[:16], title=str(value))
    return cell(value)


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
