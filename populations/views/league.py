"""Views of who plays how well: standings, champions, results of pairs, mixtures, calibration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from arena.types import is_external
from populations.league.names import short_name
from populations.views.notices import anchor_text, unproven_lines
from populations.views.parts import Column, Document, Line, Room, Row, Section, Table, player, said

MARK = "*"
"""Character beside the champion."""

OPPONENTS = 10
"""Opponents of a champion that are shown."""

CAUSES = {"exploit": "copy", "explore": "change"}
"""Words for causes of generations."""

MAP_WIDTH = 120
"""Characters of a line from which on results are a map."""

MAP_PLAYERS = 12
"""Most players of a map."""

Player = tuple[str, str]
"""Population and name."""

STANDINGS = (
    player("player"),
    # A title of one blank: it stands behind the name.
    Column("leader", "mark", " "),
    Column("rating", "elo"),
    Column("rating", "interval", "95%"),
    Column("rank", "ranks", "ranks"),
    Column("matches", "count"),
    Column("score", "share"),
    Column("generation", title="gen"),
    Column("agent_steps", "count", "steps"),
    player("parent", drop=1),
    Column("state", "word", drop=2),
    # Only where somebody is no main policy; what a rating means depends on it then.
    Column("role", "word"),
    Column("exploitability", drop=3),
    Column("wins", "count", drop=5),
    Column("draws", "count", drop=6),
    Column("losses", "count", drop=7),
    Column("mean_return", "share", "return", drop=4),
)


def standing_rows(document: Document) -> list[Row]:
    """Return the players of all populations."""
    populations = document["populations"]
    return [{"population": name, **line} for name, lines in populations.items() for line in lines]


def without_twins(document: Document) -> Document:
    """Return standings in which a policy and its ghost with the same weights are one row."""
    populations = document["populations"]
    shown = {
        name: [line for line in lines if line["same_as"] is None]
        for name, lines in populations.items()
    }
    return {**document, "populations": shown}


def standings(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table per population: rating with interval and record of each player, best first."""
    for name, lines in document["populations"].items():
        rows = [
            {
                **line,
                "leader": MARK if line["champion"] else None,
                # States and roles that most players have say nothing.
                "state": None if line.get("state") == "active" else line.get("state"),
                "role": None if line.get("role") == "main" else line.get("role"),
            }
            for line in lines
        ]
        below = [Line(f"{MARK} champion")] if any(row["leader"] for row in rows) else []
        if rows and all(row["rating"] is None for row in rows):
            below.append(
                Line("no ratings yet: they begin with the first fit of evaluation matches")
            )
        yield Section(
            title=Line("standings of {name}", {"name": name}),
            body=Table(STANDINGS, rows),
            below=below,
        )


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
    """Return what each champion scores against its opponents."""
    return [
        {"population": one["population"], "player": one["player"], **row}
        for one in document["champions"]
        for row in one["opponents"]
    ]


def champion(document: Document, room: Room) -> Iterator[Section]:
    """Yield since when each champion leads, by how much, its line of copies, and its results."""
    champions = document["champions"]
    if not champions:
        none = "no champion yet: there is one after the first fit of evaluation matches"
        yield Section(below=[Line(none)])
    for one in champions:
        lines = [said(text) for text in told_of(one)]
        changes = one.get("changes") or 0
        # A rewind, which is made while nothing runs, may have left it the lead.
        since = " since {since:time} UTC" if one["since"] is not None else ""
        lines.append(
            Line(
                f"leads{since}, after {{changes}} changes of the lead", {**one, "changes": changes}
            )
        )
        if one.get("next") is not None:
            between = (
                ", 95% {lead_low:signed}..{lead_high:signed}"
                if one.get("lead_low") is not None
                else ""
            )
            lines.append(Line("next: {next:player}, {lead:elo} Elo behind" + between, one))
        if line := one.get("line", ()):
            path = [
                Line(
                    "{policy:player} ({cause} at {begin:count})",
                    {**part, "cause": CAUSES.get(str(part["cause"]), part["cause"])},
                )
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
        hidden = len(opponents) - len(shown)
        more = Line("{hidden} more opponents hidden", {"hidden": hidden}, hint="--wide shows all")
        yield Section(
            title=Line("results, the worst score first"),
            body=Table(RESULTS, shown),
            below=[more] if hidden else [],
        )


def told_of(one: Row) -> Iterator[str]:
    """Yield what a champion has won against the anchor itself, and why it may not be better."""
    if score := anchor_text(one.get("anchor")):
        yield score
    yield from unproven_lines([one["unproven"]])


def rank_of(document: Document) -> dict[Player, int]:
    """Return the places of players by rating, by population and name."""
    players = document.get("players", ())
    return {
        (str(one["population"]), str(one["player"])): place for place, one in enumerate(players)
    }


def worst_first(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return cells by the player's rating, for one player the worst score first."""
    ranks = rank_of(document)

    def key(row: Row) -> tuple[int, float]:
        one = str(row["population"]), str(row["player"])
        score = row["score"]
        return ranks.get(one, len(ranks)), 2.0 if score is None else score

    return sorted(rows, key=key)


def is_map(document: Document, room: Room) -> bool:
    """Return whether the results are shown as a map: there is room for all policies and bots."""
    # A place per seat would be a map per pair of seats; a limit counts rows of a list.
    rows = document["payoff"]
    if room.limit is not None or room.is_wide or any("seat" in row for row in rows):
        return False
    # By the players, of which a limit cuts off none.
    return room.width >= MAP_WIDTH and 1 < len(_living(rank_of(document))) <= MAP_PLAYERS


def _living(players: Iterable[Player]) -> list[Player]:
    """Return the players that are no ghosts."""
    return [one for one in players if "@" not in one[1]]


PAYOFF = (
    player("player"),
    Column("rating", "elo"),
    Column("seat", "word", is_label=True),
    player("opponent"),
    Column("opponent_rating", "elo", "rating"),
    Column("opponent_seat", "word", "its seat", is_label=True),
    Column("matches", "count"),
    Column("score", "share", pair="met"),
    Column("wins", "count", drop=1),
    Column("draws", "count", drop=2),
    Column("losses", "count", drop=3),
    Column("mean_return", "share", "return", drop=4),
)


RESULT = (
    *(Column("matches"), Column("distinct"), Column("wins"), Column("draws"), Column("losses")),
    *(Column("score", "share"), Column("mean_return", "share")),
)
RECORD = (player("opponent"), Column("mode", "word"), Column("seat", "word"), *RESULT)
PAIRS = (player("home"), player("away"), *RESULT)
RATED = (
    *(player("player"), Column("rating", "elo")),
    *(Column("rating_low", "elo", "low"), Column("rating_high", "elo", "high")),
)


def payoff(document: Document, room: Room) -> Iterator[Section]:
    """Yield results of pairs: a map where there is room, else a list, the worst score first."""
    if is_map(document, room):
        yield _map(document, room)
        return
    rows = worst_first(document["payoff"], document)
    ratings = _ratings(document)
    shown = [
        {
            **row,
            "met": (row["player"], row["opponent"]),
            "player": _name(row["population"], row["player"], room),
            "opponent": _name(row.get("opponent_population"), row["opponent"], room),
            "rating": ratings.get((str(row["population"]), str(row["player"]))),
            "opponent_rating": ratings.get(
                (str(row.get("opponent_population")), str(row["opponent"]))
            ),
        }
        for row in rows
    ]
    title = Line("payoff: best rated player first, for each its worst score first")
    yield Section(title=title if rows else None, body=Table(PAYOFF, shown))


def _ratings(document: Document) -> dict[Player, object]:
    players = document.get("players", ())
    return {(str(one["population"]), str(one["player"])): one.get("rating") for one in players}


def _name(population: object, name: object, room: Room) -> object:
    """Return a player's name, with its population where several have a bot of this name."""
    if len(room.populations) > 1 and is_external(str(name)):
        return f"{population}/{short_name(str(name), populations=room.populations)}"
    return name


def _map(document: Document, room: Room) -> Section:
    rows = document["payoff"]
    ranks = rank_of(document)

    def rank(one: Player) -> int:
        return ranks.get(one, len(ranks))

    everybody = {(str(row["population"]), str(row["player"])) for row in rows}
    living = _living(sorted(everybody))
    # What room is left is for the best ghosts.
    ghosts = sorted(everybody - set(living), key=rank)[: MAP_PLAYERS - len(living)]
    players = sorted([*living, *ghosts], key=rank)
    scores = {
        (
            (str(row["population"]), str(row["player"])),
            (str(row["opponent_population"]), str(row["opponent"])),
        ): row["score"]
        for row in rows
    }
    ratings = _ratings(document)
    # Columns bear the numbers of the lines: names would be too wide.
    columns = [
        Column("number", title="#", is_label=True),
        player("player"),
        Column("rating", "elo", is_label=True),
        *(
            Column(str(place), "percents", f"#{place}", is_label=True, pair=f"met {place}")
            for place in range(1, len(players) + 1)
        ),
    ]
    lines: list[Row] = [
        {
            "number": f"#{place}",
            "player": _name(*one, room),
            "rating": ratings.get(one),
            **{str(other): scores.get((one, their)) for other, their in enumerate(players, 1)},
            **{f"met {other}": (one[1], their[1]) for other, their in enumerate(players, 1)},
        }
        for place, one in enumerate(players, 1)
    ]
    hidden = len(everybody) - len(players)
    more = Line("{hidden} ghosts hidden", {"hidden": hidden}, hint="--wide lists every pair")
    return Section(
        title=Line(
            "payoff: score of the line's player against the column's, in percent; best first"
        ),
        body=Table(columns, lines),
        below=[more] if hidden else [],
    )


MIXTURE = (
    player("player"),
    Column("probability", "share", is_label=True),
    Column("rating", "elo"),
    Column("rating", "interval", "95%", drop=1),
    Column("agent_steps", "count", "steps", drop=2),
)


def mixture(document: Document, room: Room) -> Iterator[Section]:
    """Yield the members of each Nash mixture, and how good it is."""
    rows = document["mixture"]
    for name, line in document["populations"].items():
        own = [row for row in rows if row["population"] == name]
        about = {**line, "name": name}
        below = [Line("cyclicity of {name}: {cyclicity:share}", about)]
        if not own:
            yield Section(below=below)
            continue
        worst = Line("expected score against the strongest of them: {worst_score:share}", about)
        yield Section(
            title=Line("Nash mixture of {num_players} players of {name}", about),
            body=Table(MIXTURE, own),
            below=[worst, *below],
        )
    if document["reason"] is not None:
        yield Section(below=[Line("{reason:sentence}", document)])


CROSS_PLAY = (
    player("player"),
    player("partner"),
    Column("matches", "count"),
    Column("score", "share"),
    Column("mean_return", "share", "return"),
)


def cross_play(document: Document, room: Room) -> Iterator[Section]:
    """Yield each policy's results beside each partner."""
    rows = document["cross_play"]
    yield Section(title=Line("cross-play"), body=Table(CROSS_PLAY, rows))


CALIBRATION = (
    player("player"),
    player("opponent"),
    Column("matches", "count"),
    Column("score", "share"),
    Column("predicted", "share"),
    Column("deviations"),
)


def calibration(document: Document, room: Room) -> Iterator[Section]:
    """Yield predicted beside observed scores, the worst first."""
    title = Line("calibration: scores beside those that ratings promise, worst first")
    rows = document["calibration"]
    yield Section(title=title, body=Table(CALIBRATION, rows))
