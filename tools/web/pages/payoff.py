"""Payoff map: results of the best players against each other.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from populations.views import charts

from ...show.labels import reader
from ..content import Block, Cell, Chart, Content, Row, Table, cell, shown
from .asked import Asked, Line, lines_of, number, standing_lines

MAX_PLAYERS = 32
"""Players of one map: more cells are too small to hit, and too many for a page."""


def payoff(asked: Asked) -> Content:
    """Return a map for each population: rows and columns in the order of the standings."""
    cells: dict[str, dict[str, Line]] = {}
    for line in lines_of(asked.documents["payoff"], "payoff"):
        cells.setdefault(str(line["player"]), {})[str(line["opponent"])] = line
    populations = standing_lines(asked.documents["standings"])
    blocks = [
        block
        for name, lines in populations.items()
        for opponents in _opposed(name, populations, cells)
        for block in [_map(asked, lines, populations[opponents], cells, opponents, name)]
    ]
    return Content(title="Payoff", blocks=blocks)


def _opposed(
    name: str, populations: dict[str, list[Line]], cells: dict[str, dict[str, Line]]
) -> list[str]:
    """Return the populations whose players have met those of this one."""
    met = {
        str(cell["opponent_population"])
        for line in populations[name]
        for cell in cells.get(str(line["player"]), {}).values()
    }
    return [other for other in populations if other in met]


def _map(
    asked: Asked,
    rows: list[Line],
    columns: list[Line],
    cells: dict[str, dict[str, Line]],
    opponents: str,
    name: str,
) -> Block:
    shown_rows = _met(rows, cells)
    shown_columns = _met(columns, cells)
    have_met = any(
        cells[row][column]["score"] is not None
        for row in shown_rows
        for column in shown_columns
        if column in cells[row]
    )
    heading = f"{name} against {opponents}" if name != opponents else f"Results within {name}"
    table = Table(
        columns=["player", *map(asked.short, shown_columns)],
        rows=[
            Row(
                cells=[
                    asked.player(player),
                    *(_score(asked, cells, player, other) for other in shown_columns),
                ]
            )
            for player in shown_rows
        ],
        total=len(shown_rows),
        csv=asked.links.base + "payoff.csv",
    )
    return Block(
        heading=heading,
        note=f"Scores of rows against columns (1: always won), best rated first, "
        f"{len(shown_rows)} of {len(rows):,} players. A cell leads to the player's results, worst "
        "first. Blue: the row wins, orange: it loses, white: even, a stroke: they have not met."
        + ("" if have_met else " None of these have met each other: the CSV has all results."),
        chart=_chart(asked, shown_rows, shown_columns, cells),
        table=table,
    )


def _met(lines: list[Line], cells: dict[str, dict[str, Line]]) -> list[str]:
    """Return the best players that have met anybody."""
    met = [str(line["player"]) for line in lines if str(line["player"]) in cells]
    return met[:MAX_PLAYERS]


def _score(asked: Asked, cells: dict[str, dict[str, Line]], player: str, other: str) -> Cell:
    line = cells[player].get(other)
    score = None if line is None else number(line["score"])
    if score is None:
        return cell(None)
    # There the result stands as a line of text.
    href = asked.links.player(player, anchor=anchor_of(asked, other))
    return cell(f"{score:.2f}", href=href)


def _chart(
    asked: Asked, rows: list[str], columns: list[str], cells: dict[str, dict[str, Line]]
) -> Chart:
    scores = {
        (("", row), ("", column)): line for row in rows for column, line in cells[row].items()
    }
    keys = [[("", player) for player in players] for players in (rows, columns)]
    return Chart(
        kind="vega",
        label="Map of scores between players; the table has the figures",
        data=charts.payoff(
            *(scores, keys[0], keys[1], reader(asked.populations)),
            href=lambda player, opponent: asked.links.player(
                player, anchor=anchor_of(asked, opponent)
            ),
        ),
    )


def result_line(line: Line, *, how: str = "") -> str:
    """Return two players' result as one line of text.

    Args:
        line: Result.
        how: Words on how they met, if anything is to be said.
    """
    score = number(line["score"])
    return (
        f"{shown(line['player'])} against {shown(line['opponent'])}{how}: {line['wins']} won, "
        f"{line['draws']} drawn, {line['losses']} lost of {line['matches']}"
        + ("" if score is None else f", score {score:.3f}")
    )


def anchor_of(asked: Asked, player: str) -> str:
    """Return the name in addresses of the results against a player."""
    name = asked.links.names.get(player) or asked.short(player)
    return "vs-" + "".join(c if c.isalnum() else "-" for c in name)
