"""Pages of who plays how well: overview, standings, ratings, results of pairs, mixtures.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from populations.views.charts import results as charts
from populations.views.charts.figures import MAX_PLAYERS, MAX_WHISKERS
from populations.views.league import PAYOFF
from populations.views.parts import Column, Line, Row, Section, Table, player

from ...show.html import Block, BlockRow, Cell, guarded, short
from .configuration import made_of
from .page_request import PageRequest

MAX_CHAMPIONS = 100
OTHERS = "Other runs"

RANKS = (
    "A policy and its ghost with the same weights are one row. Ratings in Elo with 95% intervals, "
    "bot:random at 0, from evaluation matches. Ranks are those that a player may have, with a "
    "confidence of 95%, by its differences to the others: they can be sure where intervals overlap."
)


def overview(asked: PageRequest) -> Iterator[Block]:
    """Yield what is played, champions, their ratings, the best players, state and learners."""
    yield from guarded("Configuration", lambda: made_of(asked))
    state, *alerts = reversed(asked.sections("status"))
    yield from asked.part("Alerts", lambda: [replace(o, title=Line("Alerts")) for o in alerts])
    # The champion's page shows the results.
    yield from asked.part(
        "Champion", lambda: [one for one in asked.sections("champion") if one.body is None]
    )
    yield from asked.part("Ratings", lambda: asked.charts("ratings"), csv="ratings")
    for block in asked.part("Standings", lambda: asked.sections("standings")):
        # The other rows are on the page of standings.
        following = asked.links.page("standings")
        is_cut = block.total > MAX_WHISKERS
        yield replace(block, rows=block.rows[:MAX_WHISKERS], following=following if is_cut else "")
    yield from asked.part("Progress", lambda: [replace(state, title=Line("Progress"))])
    yield from asked.part("Learners", lambda: asked.sections("learners"))
    if asked.others:
        rows = [
            BlockRow([[Cell(short(f"differences to {name}"), href=href)]])
            for href, name in asked.others.items()
        ]
        yield Block(heading=OTHERS, rows=rows, total=len(rows))


def standings(asked: PageRequest) -> Iterator[Block]:
    """Yield all players of each population with their records."""

    def make() -> Iterator[Section]:
        cyclicity = asked.documents["standings"]["cyclicity"]
        both = zip(asked.charts("standings"), asked.sections("standings"), strict=True)
        for name, (drawn, section) in zip(asked.standings, both, strict=True):
            share = cyclicity.get(name)
            cyclic = (
                f" Cyclicity {share:.2f}: that share of the results no rating can express."
                if isinstance(share, float)
                else ""
            )
            yield replace(section, about=RANKS + cyclic, chart=drawn.chart)

    yield from asked.part("Standings", make, csv="standings")


def champions(asked: PageRequest) -> Iterator[Block]:
    """Yield all that have led their population."""
    found = asked.rows("ratings", "champions")[::-1][:MAX_CHAMPIONS]
    columns = (
        Column("population", "word"),
        player("player", "champion"),
        Column("since", "time", "since (UTC)"),
        Column("until", "time", "until (UTC)"),
    )
    title = Line("Champions, the newest first")
    made = Section(title=title, body=Table(columns, found), csv="champions")
    yield from asked.part("Champions", lambda: [made])


RESULT = (
    "{player} against {opponent}: {wins} won, {draws} drawn, {losses} lost of {matches}, score "
    "{score:share}"
)
"""Result of two players as one line of text."""

RESULTS = (
    *("opponent", "seat", "opponent_seat", "score", "matches"),
    *("wins", "draws", "losses", "mean_return"),
)
"""Columns of the view payoff about one player, the score before what it rests on."""


def results(rows: list[Row]) -> Table:
    """Return results of one player, each as a line to copy."""
    columns = [one for key in RESULTS for one in PAYOFF if one.key == key]
    shown = [{**row, "met": (row["player"], row["opponent"])} for row in rows]
    return Table(columns, shown, copied=RESULT, anchor="vs {opponent:player}")


def payoff(asked: PageRequest) -> Iterator[Block]:
    """Yield a map for each pair of populations, in the order of the standings, and its results."""
    yield from asked.part("Results", lambda: asked.charts("payoff"), csv="payoff")
    yield from asked.part("Results", lambda: _best_results(asked), csv="payoff")


def _best_results(asked: PageRequest) -> list[Section]:
    """Return results between the best players; a big league has hundreds of thousands more."""
    document = asked.documents["payoff"]
    best = {
        str(line["player"]) for lines in asked.standings.values() for line in lines[:MAX_PLAYERS]
    }
    cells = [
        cell
        for cell in asked.rows("payoff", "payoff")
        if cell["player"] in best and cell["opponent"] in best
    ]
    return asked.sections("payoff", {**document, "payoff": cells})


def mixture(asked: PageRequest) -> Iterator[Block]:
    """Yield the members of each mixture with their probabilities."""

    def make() -> Iterator[Section]:
        document = asked.documents["mixture"]
        members = asked.rows("mixture", "mixture")
        for name, line in document["populations"].items():
            own = [one for one in members if one["population"] == name]
            if own:
                yield Section(
                    title=Line("Mixture of {name}", {"name": name}),
                    about="One of these frozen players is drawn for each episode, with these "
                    f"probabilities. Of {line['num_players']} players none scores more against it "
                    "than it does. arena export --mixture writes it.",
                    chart=charts.mixture(own, asked.reader),
                )
        yield from asked.sections("mixture")

    yield from asked.part("Mixture", make, csv="mixture")
