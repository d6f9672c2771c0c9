"""Views of ``arena league``: documents of plain data from a run directory.

Inspection never talks to the controller: it reads the journal through a read-only connection, and
`status.json`. It works during a run, after a SIGKILL, and after the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from arena.errors import ConfigError
from arena.matches.comparisons import MAX_SEAT_PAIRS, is_by_seats
from arena.matches.pair_scores import mean_score
from arena.matches.seating import num_episodes
from arena.types import Digest, ghost_id, is_external, is_trainee
from populations.choices import with_names
from populations.core import SearchSpace
from populations.inspection.calibration import calibrations
from populations.inspection.cells import payoff_cells
from populations.inspection.checkpoints import pins_of
from populations.inspection.cross_play import cross_play
from populations.inspection.documents.anchor import anchor_scores
from populations.inspection.documents.champions import champion_view as champion_view
from populations.inspection.documents.champions import champions_of as champions_of
from populations.inspection.documents.diff import diff_view as diff_view
from populations.inspection.documents.gains import generations_of, plain_generations
from populations.inspection.documents.learners import learners_view as learners_view
from populations.inspection.documents.lives import why_view as why_view
from populations.inspection.documents.metrics import metrics_view as metrics_view
from populations.inspection.documents.mixture import mixture_view as mixture_view
from populations.inspection.documents.status import status_view as status_view
from populations.inspection.documents.unproven import unproven_champions
from populations.inspection.exploitability import read_exploitability
from populations.inspection.inspection import Document
from populations.inspection.inspection import Inspection as Inspection
from populations.inspection.openings import openings_view as openings_view
from populations.inspection.ratings import ASSIGNED, rating_points
from populations.inspection.sentences import event_document
from populations.league.standings import RATING, Standing
from populations.records.games import margin, populations_of
from populations.records.rows import Json


def document(
    run: Inspection, view: str, population: str | None = None, **options: object
) -> Document:
    """Return the document of a view of `populations.views.views.VIEWS`.

    Args:
        run: Run to read.
        view: Name of the view.
        population: Population that it is restricted to. None: all.
        **options: Options of the view's function.
    """
    make = globals()[f"{view.replace('-', '_')}_view"]
    return {"run": run.tables.run.run, **make(run, population, **options)}


def standings_view(run: Inspection, population: str | None) -> Document:
    """Return the standings with ratings and records."""
    measured = read_exploitability(run.run_dir)
    return {
        "populations": {
            name: [_standing_json(line, measured, space=run.space(name)) for line in lines]
            for name, lines in run.standings(population).items()
        },
        "cyclicity": cyclicity(run, population),
        "fit": fits(run, population),
        "anchor": anchor_scores(run, population),
        "unproven": unproven_champions(run, population),
    }


def cyclicity(run: Inspection, population: str | None = None) -> dict[str, float | None]:
    """Return the share of results that no rating can express, by population; None before a fit."""
    ratings = run.tables.ratings
    return {
        name: ratings[name].cyclicity if name in ratings else None
        for name in dict.fromkeys(seat.population for seat in run.league.seats)
        if population in (None, name)
    }


def _standing_json(
    line: Standing, measured: Mapping[str, float], *, space: SearchSpace
) -> Document:
    document: Document = line._asdict()
    document["hyperparameters"] = with_names(line.hyperparameters, space)
    # A path within the run, for commands that play; documents name weights by digest.
    del document["key"]
    document["exploitability"] = measured.get(line.weights or "")
    return document


def payoff_view(run: Inspection, population: str | None, *, by_seats: bool = False) -> Document:
    """Return results between the players of the standings, from evaluation matches.

    ``merged_matches`` are those of weights that are gone, once for each of their seats: they are in
    no cell, but in the ratings (`populations.league.merging`). ``players`` are those of the
    standings with their ratings, the best of each population first.

    Args:
        run: Run to read.
        population: Population of the cells' players. None: all.
        by_seats: Whether each pair of seats has a cell, instead of one over all seats.
    """
    seats = run.league.seats
    if by_seats and not is_by_seats(seats):
        raise ConfigError(
            f"a run has results of each pair of seats if there are {MAX_SEAT_PAIRS} at most; with "
            f"{len(seats)} seats it has those of players in all seats together"
        )
    cells = payoff_cells(
        run.reader.pairs(kind="evaluate"),
        seats=seats,
        names=run.names(),
        by_seats=by_seats,
    )
    shown = [cell for cell in cells if population in (None, cell["population"])]
    merged = sum(
        record.matches
        for (name, entrant), record in run.league.records.items()
        if is_trainee(entrant) and population in (None, name)
    )
    players = [
        {"population": name, **line.picked("player", *RATING)}
        # Also of other populations: cells name them as opponents.
        for name, lines in run.standings().items()
        for line in lines
    ]
    return {
        "payoff": shown,
        "players": players,
        "merged_matches": merged,
    }


def cross_play_view(run: Inspection, population: str | None) -> Document:
    """Return how each policy does beside each partner, where teammates are mixed."""
    rows = cross_play(run.reader.all_tallies(), tables=run.tables, league=run.league)
    return {"cross_play": [row for row in rows if population in (None, row["population"])]}


def calibration_view(run: Inspection, population: str | None) -> Document:
    """Return predicted beside observed scores, the worst pair first."""
    names = run.names()
    pairs = calibrations(
        run.reader.pairs(kind="evaluate"), ratings=run.tables.ratings, seats=run.league.seats
    )
    shown = [
        (first, second, one)
        for (first, second), one in pairs.items()
        if population in (None, first[0], second[0])
    ]
    # Unknown deviations last, with those of 0.
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
    return {"calibration": rows, "fit": fits(run, population)}


def ratings_view(run: Inspection, population: str | None) -> Document:
    """Return the ratings of all evaluated checkpoints, by one fit, and each population's champions.

    A point's ``time`` is when the training that made its checkpoint was given out; null: unknown.
    """
    tables, fit = run.rated
    # Later than the rows: the events of all their assignments are among them.
    assigned = run.reader.events(kinds=ASSIGNED)
    points = rating_points(tables, fit.intervals(), assigned=assigned)
    return {
        "populations": {n: lines for n, lines in points.items() if population in (None, n)},
        "champions": champions_of(run, population),
    }


def fits(run: Inspection, population: str | None = None) -> dict[str, dict[str, Json]]:
    """Return the misfit of each rated population: Elo per pair and against ``bot:random``, and its
    significance.
    """
    return {
        name: {
            "pair_deviation": row.pair_deviation,
            "anchor_deviation": row.anchor_deviation,
            "misfit": row.misfit,
        }
        for name, row in run.tables.ratings.items()
        if population in (None, name)
    }


def lineage_view(run: Inspection, population: str | None) -> Document:
    """Return the origin of each policy's weights: copies, and every generation of every policy.

    ``started`` is the time of the run's first event, ``rating`` a policy's rating now.
    """
    ratings: dict[str, float | None] = {
        line.player: line.rating for lines in run.standings().values() for line in lines
    }
    policies = [
        {
            "policy": row.policy,
            "generation": row.generation,
            "parent": row.parent,
            "agent_steps": row.agent_steps,
            "rating": ratings.get(row.policy),
            "state": row.state,
        }
        for row in run.tables.policies.values()
        if population in (None, row.population)
    ]
    begin = run.reader.events(limit=1)
    return {
        "started": begin[0].time if begin else None,
        "policies": policies,
        "generations": generations_of(run, population),
        "exploits": events_view(run, population, kinds=("exploited",))["events"],
        "immigrants": events_view(run, population, kinds=("immigrated",))["events"],
    }


def hyperparameters_view(run: Inspection, population: str | None) -> Document:
    """Return the current hyperparameters of each policy, and every change.

    ``factors`` are those of hyperparameters that have a schedule; ``search_space`` is what PBT may
    change, by population.
    """
    now: Document = {
        row.policy: with_names(row.hyperparameters, run.space(row.population))
        for row in run.tables.policies.values()
        if population in (None, row.population)
    }
    kinds = (
        *("policy_created", "exploited", "explored", "immigrated", "replayed"),
        *("learning_rate_halved", "rewound", "hyperparameters_changed"),
    )
    factors: Document = {
        row.policy: dict(row.factors)
        for row in run.tables.policies.values()
        if population in (None, row.population) and row.factors
    }
    return {
        "policies": now,
        "factors": factors,
        "search_space": {
            name: {key: dict(entry) for key, entry in run.space(name).items()}
            for name in run.run_file.config.populations
            if population in (None, name)
        },
        "generations": plain_generations(run, population),
        "changes": events_view(run, population, kinds=kinds)["events"],
    }


def matches_view(run: Inspection, population: str | None) -> Document:
    """Return every committed tally: players, assignment and results."""
    seats = run.league.seats
    seats_of_kind = {"evaluate": seats, "train": run.league.training_seats}
    rows = [
        {
            "sequence": row.sequence,
            "assignment": row.assignment_id,
            "kind": row.kind,
            "seats": {
                # A tally has its entrants in the order of the seats.
                seat.name: _name(run, entrant)
                for seat, entrant in zip(seats_of_kind[row.kind], row.tally.entrants, strict=True)
            },
            "matches": row.tally.matches,
            "distinct": row.tally.distinct,
            "pairs": [asdict(pair) for pair in row.tally.pairs],
            "mean_return": [total / row.tally.matches for total in row.tally.return_sum],
            # Not per match: in cooperation a match is two episodes.
            "mean_length": row.tally.length_sum / num_episodes(row.tally, seats=seats),
        }
        for row in run.reader.all_tallies()
        # Every match has all seats, so this keeps all tallies or none.
        if population is None or population in {seat.population for seat in seats}
    ]
    return {"tallies": rows}


def _name(run: Inspection, entrant: str) -> str:
    """Return a readable name for a tally's entrant: weights digests as policy@agent_steps."""
    origin = run.league.checkpoints.get(Digest(entrant))
    if origin is None:
        return entrant
    return f"{origin.policy}@{origin.agent_steps:012d}"


def checkpoints_view(run: Inspection, population: str | None) -> Document:
    """Return every recorded checkpoint and ghost; ``pins`` says why a kept checkpoint stays."""
    pins = pins_of(run.tables, run.league, section=run.run_file.config.checkpoints)
    checkpoints = [
        # The name by which commands take it; none that is not kept.
        {
            "player": ghost_id(row.policy, agent_steps=row.agent_steps)
            if row.key in pins
            else None,
            **asdict(row),
            "pins": list(pins.get(row.key, ())),
        }
        for row in run.tables.checkpoints.values()
        # A policy's id is its population and number.
        if population in (None, row.policy.split("/")[0])
    ]
    ghosts = [
        asdict(row)
        for row in run.tables.ghosts.values()
        if population in (None, row.population) and not row.doomed
    ]
    return {"checkpoints": checkpoints, "ghosts": ghosts}


def games_view(run: Inspection, population: str | None) -> Document:
    """Return the evaluation games that are kept, the newest first.

    ``margins`` says how each ended for the players in their order: points of a side less those of
    the best other one; in cooperation the return.
    """
    seats = run.league.seats
    games: list[Json] = [
        {
            "game": row.game,
            "time": row.time,
            "seats": [seats[seat].name for seat in row.seats],
            "players": list(row.players),
            "weights": [None if is_external(name) else name for name in row.entrants],
            "points": list(row.points),
            "returns": list(row.returns),
            "margins": [margin(row, place, seats=seats) for place in range(len(row.seats))],
            "steps": row.steps,
            "holds": row.holds,
        }
        for row in reversed(run.tables.games.values())
        if population is None or population in populations_of(row, seats=seats)
    ]
    return {"games": games}


def events_view(
    run: Inspection, population: str | None, *, kinds: Sequence[str] | None = None
) -> Document:
    """Return every decision with its reason and numbers, oldest first.

    Args:
        run: Run to read.
        population: Population of the events' subjects. None: all.
        kinds: Kinds of the events. None: all.
    """
    events = [
        event_document(row)
        for row in run.reader.events(kinds=kinds)
        # Events without a subject are about the whole run.
        if population is None or row.subject.split("/")[0] in (population, "")
    ]
    return {"events": events}
