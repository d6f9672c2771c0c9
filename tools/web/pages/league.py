"""Pages of who plays how well: overview, standings, ratings, results of pairs, mixtures.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from populations.views import charts, curves
from populations.views.curves import ratings as rating_curves
from populations.views.parts import Column, Line, Row, Section, Table, player

from ...show.html import Block, BlockRow, Cell, guarded, short, slug
from ...show.values import name as name_of
from .asked import Asked
from .configuration import made_of

MAX_WHISKERS = 30
"""Players of the chart of standings: more are a wall."""

MAX_PLAYERS = 32
"""Players of one map: more cells are too small to hit, and too many for a page."""

MAX_LINES = 16
"""Policies of one chart: more cannot be told apart."""

MAX_CHAMPIONS = 100
OTHERS = "Other runs"

RANKS = (
    "A policy and its ghost with the same weights are one row. Ratings in Elo with 95% intervals, "
    "bot:random at 0, from evaluation matches. Ranks are those that a player may have, with a "
    "confidence of 95%, by its differences to the others: they can be sure where intervals overlap."
)


def overview(asked: Asked) -> Iterator[Block]:
    """Yield what is played, champions, their ratings, the best players, state and learners."""
    yield from guarded("Configuration", lambda: made_of(asked))
    state, *alerts = reversed(asked.sections("status"))
    yield from asked.part("Alerts", lambda: [replace(o, title=Line("Alerts")) for o in alerts])
    # Its results are on the champion's own page.
    yield from asked.part(
        "Champion", lambda: [one for one in asked.sections("champion") if one.body is None]
    )
    yield from asked.part("Ratings", lambda: _curves(asked), csv="ratings")
    for block in asked.part("Standings", lambda: asked.sections("standings")):
        # The others are on a page of their own.
        following = asked.medium.links.page("standings")
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


def standings(asked: Asked) -> Iterator[Block]:
    """Yield all players of each population with their records."""

    def make() -> Iterator[Section]:
        cyclicity = cast("Row", asked.documents["standings"]["cyclicity"])
        tables = asked.sections("standings")
        for (name, lines), section in zip(asked.standings().items(), tables, strict=True):
            share = cyclicity.get(name)
            cyclic = (
                f" Cyclicity {share:.2f}: that share of the results no rating can express."
                if isinstance(share, float)
                else ""
            )
            spec = charts.standings(lines[:MAX_WHISKERS], asked.reader)
            yield replace(section, about=RANKS + cyclic, chart=spec)

    yield from asked.part("Standings", make, csv="standings")


def rated(asked: Asked) -> Iterator[Block]:
    """Yield ratings of policies over their training, of one fit, and the champions."""
    yield from asked.part("Ratings", lambda: _curves(asked), csv="ratings")
    yield from asked.part("Ratings", lambda: asked.sections("ratings"), csv="ratings")
    champions = asked.rows("ratings", "champions")[::-1][:MAX_CHAMPIONS]
    columns = (
        Column("population", "word"),
        player("player", "champion"),
        Column("since", "time", "since (UTC)"),
        Column("until", "time", "until (UTC)"),
    )
    title = Line("Champions, the newest first")
    made = Section(title=title, body=Table(columns, champions), csv="champions")
    yield from asked.part("Champions", lambda: [made])


def _curves(asked: Asked) -> Iterator[Section]:
    """Yield the curves of the best policies of each population, and the strip of champions."""
    for name, lines in asked.populations("ratings").items():
        points = {str(line["player"]): line for line in lines if line["points"]}
        best = [points[one] for one in asked.best(name) if one in points][:MAX_LINES]
        if not best:
            continue
        about = (
            f"All points are of one fit, with 95% intervals. {len(best)} of {len(lines):,} "
            "policies, the best now."
        )
        yield Section(
            title=Line("Ratings of {name} over agent steps", {"name": name}),
            about=about,
            chart=rating_curves(best, asked.reader),
        )
        own = [one for one in asked.rows("ratings", "champions") if one["population"] == name]
        if strip := curves.champions(own, best, asked.reader):
            title = Line("Champions of {name} over time", {"name": name})
            yield Section(title=title, chart=strip, csv="champions")


RESULT = (
    "{player} against {opponent}: {wins} won, {draws} drawn, {losses} lost of {matches}, score "
    "{score:share}"
)
"""Result of two players as one line of text."""


def results(rows: list[Row]) -> Table:
    """Return results of one player, each as a line to copy."""
    columns = (
        player("opponent"),
        Column("seat", "word"),
        Column("opponent_seat", "word", "its seat"),
        Column("score", "share"),
        Column("matches", "count"),
        Column("wins", "count"),
        Column("draws", "count"),
        Column("losses", "count"),
        Column("mean_return", "share", "return"),
    )
    return Table(columns, rows, copied=RESULT, anchor="vs {opponent:player}")


def payoff(asked: Asked) -> Iterator[Block]:
    """Yield a map for each pair of populations, in the order of the standings, and its results."""
    yield from asked.part("Results", lambda: _maps(asked), csv="payoff")
    yield from asked.part("Results", lambda: _best_results(asked), csv="payoff")


def _best_results(asked: Asked) -> list[Section]:
    """Return results between the best players; a big league has hundreds of thousands more."""
    document = asked.documents["payoff"]
    best = {
        str(line["player"])
        for lines in asked.populations().values()
        for line in lines[:MAX_PLAYERS]
    }
    cells = [
        cell
        for cell in asked.rows("payoff", "payoff")
        if cell["player"] in best and cell["opponent"] in best
    ]
    return asked.sections("payoff", {**document, "payoff": cells})


def _maps(asked: Asked) -> Iterator[Section]:
    cells = {
        (
            (str(cell["population"]), str(cell["player"])),
            (str(cell["opponent_population"]), str(cell["opponent"])),
        ): cell
        for cell in asked.rows("payoff", "payoff")
        # Of a pair of seats each has a cell of its own, which a map has no place for.
        if "seat" not in cell
    }
    met = {own for own, _ in cells}
    players = {
        name: [key for line in lines if (key := (name, str(line["player"]))) in met][:MAX_PLAYERS]
        for name, lines in asked.populations().items()
    }
    opposed = {(own[0], their[0]) for own, their in cells}
    for population, rows in players.items():
        for other, columns in players.items():
            if (population, other) not in opposed:
                continue
            shown = f"{len(rows)} of {len(asked.populations()[population]):,} players"
            yield Section(
                title=Line("{one} against {other}", {"one": population, "other": other}),
                about="Scores of rows against columns (1: always won), best rated first, "
                f"{shown}. A cell leads to the player's results, worst first.",
                # Where it stands as a line of text.
                chart=charts.payoff(
                    cells, rows, columns, asked.reader, href=partial(_address, asked)
                ),
            )


def _address(asked: Asked, own: str, opponent: str) -> str:
    """Return the address of a result on the page of a player."""
    page = asked.medium.links.player(own)
    return f"{page}#{slug(f'vs {name_of(opponent, asked.medium.room)}')}" if page else ""


def mixture(asked: Asked) -> Iterator[Block]:
    """Yield the members of each mixture with their probabilities."""

    def make() -> Iterator[Section]:
        document = asked.documents["mixture"]
        members = asked.rows("mixture", "mixture")
        for name, line in cast("Mapping[str, Any]", document["populations"]).items():
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
