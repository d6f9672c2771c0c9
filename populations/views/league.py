"""Views of playing strength: standings, ratings, results of pairs, mixtures, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.matches.pair_scores import mean_score
from arena.types import is_external, is_trainee
from populations.league.names import short_name
from populations.views.charts import figures
from populations.views.charts.figures import Figure
from populations.views.charts.results import Key, sides_of
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
)
from populations.views.questions.exploitability import read_exploitability
from populations.views.view import View, listed

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

CURVE = 48
"""Maximum width of a curve in characters."""

MARK = "*"
"""Character that marks the champion."""

MAP_WIDTH = 120
"""Width of the screen, in characters, from which results of pairs are shown as a map."""

MAP_PLAYERS = 12
"""Maximum number of players in a map of results."""


def standings_document(run: Inspection, population: str | None) -> Document:
    """Return the document of the standings, with ratings and numbers of wins, draws and losses."""
    from populations.views.questions.champions import anchor_score, unproven_champions

    measured, best = read_exploitability(run.run_dir), run.champions(population)
    return {
        "populations": {
            name: [
                # Documents name weights by digest, so the path within the run is left out.
                {key: value for key, value in line._asdict().items() if key != "key"}
                | {"exploitability": measured.get(line.weights or "")}
                for line in lines
            ]
            for name, lines in run.standings(population).items()
        },
        "cyclicity": run.cyclicity(population),
        "fit": run.fits(population),
        "anchor": {name: anchor_score(run, name, one) for name, one in best.items()},
        "unproven": unproven_champions(run, population),
    }


STANDINGS = (
    player("player"),
    # The mark follows the name, so the column's title is a blank.
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
    # Rows leave out the role `main`, so this column is shown only in populations with exploiters.
    Column("role", "word"),
    Column("exploitability", drop=3),
    Column("wins", "count", drop=5),
    Column("draws", "count", drop=6),
    Column("losses", "count", drop=7),
    Column("mean_return", "share", "return", drop=4),
)


def standing_rows(document: Document) -> list[Row]:
    """Return a row for each player of all populations."""
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
    """Yield a table per population with the rating and results of each player, best first."""
    for name, lines in document["populations"].items():
        rows = [
            {
                **line,
                "leader": MARK if line["champion"] else None,
                # The usual state and role are left out, so that the exceptions stand out.
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


def _ratings(document: Document) -> dict[Key, object]:
    """Return ratings by population and player, the best of each population first."""
    players = document.get("players", ())
    return {(str(one["population"]), str(one["player"])): one.get("rating") for one in players}


def _rank(document: Document) -> Callable[[Key], int]:
    """Return a function that ranks players: the best first, those not in the standings last."""
    places = {one: place for place, one in enumerate(_ratings(document))}
    return lambda one: places.get(one, len(places))


def worst_first(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return results ordered by the player's rank and, for one player, from the worst score on."""
    rank = _rank(document)

    def key(row: Row) -> tuple[int, float]:
        score = row["score"]
        return rank(sides_of(row)[0]), 2.0 if score is None else score

    return sorted(rows, key=key)


def is_map(document: Document, room: Room) -> bool:
    """Return whether the results are shown as a map, which needs room for all policies and bots."""
    # Results by seat would need a map for each pair of seats, and ``--limit`` requires a list.
    rows = document["payoff"]
    if room.limit is not None or room.is_wide or any("seat" in row for row in rows):
        return False
    # Use the players of the standings for this decision, as a limit may have shortened the rows.
    return room.width >= MAP_WIDTH and 1 < len(_living(_ratings(document))) <= MAP_PLAYERS


def _living(players: Iterable[Key]) -> list[Key]:
    """Return the players that are not ghosts; a ghost's name has an "@"."""
    return [one for one in players if "@" not in one[1]]


def payoff_document(run: Inspection, population: str | None, *, by_seats: bool = False) -> Document:
    """Return results between the players of the standings, from evaluation matches.

    ``merged_matches`` counts matches of removed weights, once for each of their seats. They are in
    no cell, but in the ratings (`populations.league.merging`). ``players`` are the players of the
    standings with their ratings, the best of each population first.

    Args:
        run: Run to read.
        population: Population of the cells' players; None for all.
        by_seats: Whether each pair of seats has a cell, instead of one cell for all seats.
    """
    from populations.league.standings import RATING

    cells = run.cells(by_seats=by_seats)
    shown = [cell for cell in cells if population in (None, cell["population"])]
    merged = sum(
        record.matches
        for (name, entrant), record in run.league.tables.records.items()
        if is_trainee(entrant) and population in (None, name)
    )
    players = [
        {"population": name, **picked(line, "player", *RATING)}
        # Include players of other populations, because cells name them as opponents.
        for name, lines in run.standings().items()
        for line in lines
    ]
    return {"payoff": shown, "players": players, "merged_matches": merged}


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
    """Yield results of pairs: a map if it fits, otherwise a list, the worst score first."""
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
            **dict(
                zip(("rating", "opponent_rating"), map(ratings.get, sides_of(row)), strict=True)
            ),
        }
        for row in rows
    ]
    title = Line("payoff: best rated player first, for each its worst score first")
    yield Section(title=title if rows else None, body=Table(PAYOFF, shown))


def _name(population: object, name: object, room: Room) -> object:
    """Return a player's name; a bot's has its population in front if the run has several."""
    if len(room.populations) > 1 and is_external(str(name)):
        return f"{population}/{short_name(str(name), populations=room.populations)}"
    return name


def _map(document: Document, room: Room) -> Section:
    rank = _rank(document)
    scores = {sides_of(row): row["score"] for row in document["payoff"]}
    everybody = {one for one, _ in scores}
    living = _living(sorted(everybody))
    # The remaining places are for the best ghosts.
    ghosts = sorted(everybody - set(living), key=rank)[: MAP_PLAYERS - len(living)]
    players = sorted([*living, *ghosts], key=rank)
    ratings = _ratings(document)
    # Names would be too wide for columns, so these have the numbers of the lines as titles.
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
    return Section(
        title=Line(
            "payoff: score of the line's player against the column's, in percent; best first"
        ),
        body=Table(columns, lines),
        below=hidden(len(everybody) - len(players), "ghosts", hint="--wide lists every pair"),
    )


def ratings_document(run: Inspection, population: str | None) -> Document:
    """Return the ratings of all evaluated checkpoints, by one fit, and each population's champions.

    A point's ``time`` is that of the training assignment that made its checkpoint; null if unknown.
    """
    from populations.views.questions.champions import champions_of
    from populations.views.questions.inspection import ASSIGNED, rating_points

    fit = run.rated
    # Events are read after the rows, so that they include those of all assignments in the rows.
    assigned = run.reader.events(kinds=ASSIGNED)
    points = rating_points(fit, assigned=assigned)
    return {
        "populations": {n: lines for n, lines in points.items() if population in (None, n)},
        "champions": champions_of(run, population),
    }


RATINGS = (
    player("player"),
    Column("curve", "curve", is_label=True, most=CURVE),
    Column("first", "error", is_label=True),
    Column("best", "error", is_label=True),
    Column("at", "count", is_label=True),
    Column("last", "error", is_label=True),
    Column("generation", title="gen", is_label=True),
    Column("copies", is_label=True),
    Column("points", drop=1, is_label=True),
)


def rating_rows(document: Document) -> list[Row]:
    """Return a row for each point of all curves."""
    populations = document["populations"]
    return [
        {"population": name, "player": line["player"], **point}
        for name, lines in populations.items()
        for line in lines
        for point in line["points"]
    ]


def ratings(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table with a rating curve of each policy, and lines about the champions."""
    for name, lines in document["populations"].items():
        points = [point for line in lines for point in line["points"]]
        if not points:
            none = Line("ratings of {name}: none yet; they need evaluation matches", {"name": name})
            yield Section(below=[none])
            continue
        every = [point["rating"] for point in points]
        scale = {
            "name": name,
            "low": min(every),
            "high": max(every),
            "most": max(point["agent_steps"] for point in points),
        }
        rows = [_rating_row(line, scale) for line in lines if line["points"]]
        rows.sort(key=lambda row: -row["last"]["rating"])
        yield Section(
            title=Line(
                "ratings of {name} by one fit: curves from {low:elo} to {high:elo} over "
                "{most:count} agent steps",
                scale,
            ),
            body=Table(RATINGS, rows),
            below=[Line("c: copied another policy   m: hyperparameters changed")],
        )
    spans = document.get("champions", ())
    if leaders := [_leader(spans, name) for name in dict.fromkeys(s["population"] for s in spans)]:
        yield Section(below=leaders)


def _rating_row(line: Row, scale: Row) -> Row:
    points = line["points"]
    best = max(points, key=lambda point: point["rating"])
    causes = {point["generation"]: point["cause"] for point in points}
    return {
        "player": line["player"],
        "curve": {**scale, "points": points},
        "first": points[0],
        "best": best,
        "at": best["agent_steps"],
        "last": points[-1],
        "generation": points[-1]["generation"],
        "copies": sum(1 for cause in causes.values() if cause == "exploit"),
        "points": len(points),
    }


def _leader(spans: Sequence[Row], population: object) -> Line:
    """Return a line about a population's champion, its time as such, and the number of changes."""
    own = [span for span in spans if span["population"] == population]
    until = "now" if own[-1]["until"] is None else "{until:time} UTC"
    return Line(
        "champion of {population}: {player:player}, from {since:time} UTC until "
        f"{until}|, after {{changes}} changes",
        {**own[-1], "changes": len(own) - 1 or None},
    )


def mixture_document(run: Inspection, population: str | None) -> Document:
    """Return the members of each population's Nash mixture, the most probable first.

    ``populations`` has, for each population, ``cyclicity`` (the share of results that no rating can
    express; null before a fit), ``num_players`` that were considered, and ``worst_score``, the
    expected score against the strongest of these players. If there is no mixture, ``reason`` says
    why, and the last two are null.
    """
    from populations.league.standings import RATING

    try:
        found, reason = run.mixtures(), None
    except ConfigError as error:
        found, reason = {}, str(error)
    shown = run.populations(population)
    members: list[Document] = [
        {
            "population": name,
            **picked(line, "player", "kind"),
            "probability": probability,
            **picked(line, *RATING, "agent_steps", "weights"),
        }
        for name in shown
        if name in found
        for line, probability in found[name].members
    ]
    return {
        "populations": {
            name: {
                **picked(run.tables.ratings.get(name), "cyclicity"),
                **picked(found.get(name), "num_players", "worst_score"),
            }
            for name in shown
        },
        "mixture": members,
        "reason": reason,
    }


MIXTURE = (
    player("player"),
    Column("probability", "share", is_label=True),
    Column("rating", "elo"),
    Column("rating", "interval", "95%", drop=1),
    Column("agent_steps", "count", "steps", drop=2),
)


def mixture(document: Document, room: Room) -> Iterator[Section]:
    """Yield the members of each Nash mixture, and its score against the strongest player."""
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


def cross_play_document(run: Inspection, population: str | None) -> Document:
    """Return the results of each policy with each partner, in runs that mix teammates."""
    from populations.views.questions.results import cross_play as played

    rows = played(run.reader.all_tallies(), league=run.league)
    return {"cross_play": [row for row in rows if population in (None, row["population"])]}


CROSS_PLAY = (
    player("player"),
    player("partner"),
    Column("matches", "count"),
    Column("score", "share"),
    Column("mean_return", "share", "return"),
)


def calibration_document(run: Inspection, population: str | None) -> Document:
    """Return predicted and observed scores of pairs, the pair with the largest deviation first."""
    from populations.views.questions.results import calibrations

    names = run.names()
    pairs = calibrations(run.met, ratings=run.tables.ratings, seats=run.league.seats)
    shown = [
        (first, second, one)
        for (first, second), one in pairs.items()
        if population in (None, first[0], second[0])
    ]
    # Pairs with an unknown deviation come last, like those with a deviation of 0.
    shown.sort(key=lambda entry: -abs(entry[2].deviations or 0.0))
    rows = [
        {
            "population": first[0],
            "player": names.get(first, first[1]),
            "opponent_population": second[0],
            "opponent": names.get(second, second[1]),
            "matches": one.matches,
            "score": mean_score(one.seen, one.matches),
            "predicted": one.predicted / one.matches,
            "deviations": one.deviations,
        }
        for first, second, one in shown
        if one.matches > 0.0
    ]
    return {"calibration": rows, "fit": run.fits(population)}


CALIBRATION = (
    player("player"),
    player("opponent"),
    Column("matches", "count"),
    Column("score", "share"),
    Column("predicted", "share"),
    Column("deviations"),
)


VIEWS: dict[str, View] = {
    "standings": View(
        document=standings_document,
        has_page=True,
        flat=standing_rows,
        sections=standings,
        on_screen=without_twins,
        takes={"--exploitability": ""},
        limits="populations",
        warns=True,
        figure=Figure(draw=figures.standings, documents=("standings",)),
    ),
    "ratings": View(
        document=ratings_document,
        has_page=True,
        flat=rating_rows,
        sections=ratings,
        limits="populations",
        figure=Figure(draw=figures.ratings, documents=("ratings",)),
        lists=("champions",),
        is_fitted=True,
    ),
    "payoff": View(
        document=payoff_document,
        has_page=True,
        sections=payoff,
        limits="payoff",
        order=worst_first,
        fits=is_map,
        takes={"--player": "", "--seats": "by_seats"},
        figure=Figure(draw=figures.payoff, documents=("payoff", "standings")),
    ),
    "mixture": View(
        document=mixture_document,
        has_page=True,
        sections=mixture,
        limits="mixture",
    ),
    "cross-play": View(
        document=cross_play_document,
        sections=listed("cross-play", CROSS_PLAY, itemgetter("cross_play")),
        limits="cross_play",
    ),
    "calibration": View(
        document=calibration_document,
        sections=listed(
            "calibration: scores beside those that ratings promise, worst first",
            CALIBRATION,
            itemgetter("calibration"),
        ),
        limits="calibration",
        warns=True,
    ),
}
