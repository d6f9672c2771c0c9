"""Overview and standings.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from populations.views import charts

from ...league.renderers.look import title_of
from ...notices import alerts_of, anchor_text, unproven_lines
from ...show.labels import reader
from ..content import Block, Cell, Chart, Content, Row, Table, cell, facts, moment, part, shown
from .asked import Asked, Line, interval, lines_of, number, ranks, standing_lines
from .learners import learner_blocks
from .payoff import result_line

MAX_WHISKERS = 30
"""Players of the chart of standings: more are a wall."""

OTHERS = "Other runs"

MAX_ALERT = 1000
"""Characters of an alert; only hostile ones are longer."""

RECORD = ("matches", "score", "wins", "draws", "losses", "mean_return")

COLUMNS = (
    *("player", "rating", "95%", "ranks", "matches", "score", "wins", "draws", "losses"),
    "return",
    *("generation", "agent steps", "parent", "state"),
)


def overview(asked: Asked) -> Content:
    """Return the state of the run, its champions, alerts, learners and the best players."""
    blocks = [
        *part("Alerts", lambda: _alerts(asked.documents["status"])),
        *part("Champion", lambda: _champions(asked)),
        *part("Progress", lambda: _progress(asked.documents["status"])),
        *part("Standings", lambda: _best(asked)),
        *part("Learners", lambda: learner_blocks(asked)),
        *_others(asked),
    ]
    return Content(title="Overview", blocks=blocks)


def _best(asked: Asked) -> Iterator[Block]:
    """Yield the best players of each population."""
    for name, lines in _shown_lines(asked).items():
        best = lines[:MAX_WHISKERS]
        table = Table(
            columns=COLUMNS,
            rows=[_standing_row(asked, line) for line in best],
            total=len(lines),
            csv=f"{asked.links.base}standings.csv",
            following=asked.links.page("standings"),
        )
        yield Block(
            heading=f"Standings of {name}",
            note=_about(asked, name, lines),
            chart=whiskers(asked, best),
            table=table,
        )


def _others(asked: Asked) -> Iterator[Block]:
    """Yield the other runs that are shown, with the differences to each."""
    rows = [
        Row(cells=[Cell(text=shown(f"differences to {name}"), href=href)])
        for href, name in asked.others.items()
    ]
    if rows:
        yield Block(heading=OTHERS, table=Table(columns=["run"], rows=rows, total=len(rows)))


def standings(asked: Asked) -> Content:
    """Return all players of each population with their records."""
    blocks = [
        Block(
            heading=f"Standings of {name}",
            note=_about(asked, name, lines),
            table=_standings_part(asked, lines),
        )
        for name, lines in _shown_lines(asked).items()
    ]
    return Content(title="Standings", blocks=blocks)


def _shown_lines(asked: Asked) -> dict[str, list[Line]]:
    """Return the standings by population, a policy and its ghost with the same weights as one."""
    return {
        name: [line for line in lines if line["same_as"] is None]
        for name, lines in standing_lines(asked.documents["standings"]).items()
    }


def _standings_part(asked: Asked, lines: list[Line]) -> Table:
    return asked.part(COLUMNS, lines, lambda line: _standing_row(asked, line), csv="standings")


def _about(asked: Asked, name: str, lines: list[Line]) -> str:
    """Return what a reader of the standings has to know, with the figures that say so."""
    document = asked.documents["standings"]
    share = number(cast("Line", document["cyclicity"]).get(name))
    text = (
        f"{len(lines):,} players, a policy and its ghost with the same weights as one. Ratings in "
        "Elo with 95% intervals, bot:random at 0, from evaluation matches. Ranks are those that a "
        "player may have, with a confidence of 95%, by its differences to the others: they can be "
        "sure where intervals overlap."
    )
    if share is not None:
        text += f" Cyclicity {share:.2f}: that share of the results no rating can express."
    return text


def _standing_row(asked: Asked, line: Line) -> Row:
    player = asked.player(line["player"])
    return Row(
        cells=[
            replace(player, text=f"{player.text} (champion)") if line["champion"] else player,
            cell(line["rating"]),
            cell(interval(line)),
            cell(ranks(line)),
            *(cell(line[key]) for key in RECORD),
            cell(line["generation"]),
            cell(line["agent_steps"]),
            asked.player(line["parent"]),
            cell(line["state"]),
        ]
    )


def whiskers(asked: Asked, lines: list[Line]) -> Chart:
    """Return ratings with their intervals, one line per player."""
    return Chart(
        kind="vega",
        label="Ratings with 95% intervals, the best player first; the table has the figures",
        data=charts.standings(lines, reader(asked.populations, asked.links.player)),
    )


def _alerts(status: Line) -> Iterator[Block]:
    alerts = alerts_of(cast("Mapping[str, str]", status))
    if alerts:
        yield Block(
            heading="Alerts",
            lines=[
                # The advice comes last: it must not be cut off.
                shown(f"{one['name']}: {one['what']}. {one.get('advice') or ''}", most=MAX_ALERT)
                for one in alerts
            ],
            is_alert=True,
        )


CHAMPION_COLUMNS = (
    *("population", "champion", "rating", "95%", "since", "next best", "leads by", "loses most to"),
    "as text",
)


def _champions(asked: Asked) -> Block:
    lines = lines_of(asked.documents["champion"], "champions")
    if not lines:
        return Block(heading="Champion", note="No player is rated yet.")
    rows = [_champion_row(asked, line) for line in lines]
    met = (
        f"{asked.short(line['player'])}: {text}."
        for line in lines
        if (text := anchor_text(line.get("anchor")))
    )
    told = [*met, *unproven_lines(line["unproven"] for line in lines)]
    return Block(
        heading="Champion",
        note=" ".join(shown(line.strip(), most=MAX_ALERT) for line in told),
        table=Table(columns=CHAMPION_COLUMNS, rows=rows, total=len(rows)),
    )


def _champion_row(asked: Asked, line: Line) -> Row:
    lead, low, high = (number(line[key]) for key in ("lead", "lead_low", "lead_high"))
    led = None if lead is None else f"{lead:+z.0f}"
    if led and low is not None and high is not None:
        led += f" ({low:+z.0f} to {high:+z.0f})"
    worst = next(iter(lines_of(line, "opponents")), None)
    score = None if worst is None else number(worst["score"])
    return Row(
        cells=[
            cell(line["population"]),
            asked.player(line["player"]),
            cell(line["rating"]),
            cell(interval(line)),
            moment(line["since"]),
            asked.player(line["next"]),
            cell(led),
            cell(None)
            if worst is None or score is None
            else cell(f"{asked.short(worst['opponent'])}: score {score:.2f}"),
        ],
        line="" if worst is None else result_line({**worst, "player": line["player"]}),
    )


PROGRESS = (
    *("state", "reason", "phase", "agent_steps", "agent_steps_per_s", "matches"),
    *("assignments_finished", "checkpoints", "ghosts", "exploits"),
)


def _progress(status: Line) -> Block:
    values: dict[str, object] = {
        title_of(key): status[key] for key in PROGRESS if status.get(key) not in (None, "")
    }
    elapsed_s = number(status["elapsed_s"]) or 0.0
    values["elapsed"] = f"{elapsed_s // 3600:.0f} h {elapsed_s % 3600 // 60:.0f} min"
    pbt = cast("Line", status["pbt"])
    values["PBT decisions"] = f"{pbt['made']} of {pbt['due']} due"
    evaluation = cast("Line", status["evaluation"])
    reached = number(evaluation.get("share_reached"))
    if reached is not None:
        asked_share = number(evaluation.get("share_asked")) or 0.0
        values["evaluation"] = f"{reached:.1%} of learner time, {asked_share:.1%} asked for"
    if quarantined := cast("list[str]", status["quarantined"]):
        values["quarantined"] = ", ".join(quarantined)
    return Block(heading="Progress", table=facts(values))
