"""Input of a fit of ratings: entrants, results and lineage as a league has them at one moment.

The league goes on changing while a fit runs. So the controller's thread takes a `Snapshot`, which
copies very little, and the thread of fits computes everything else from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from msgspec import Struct

from arena.types import Digest, Entrant, PolicyId, is_external
from populations.league.league import League
from populations.league.lineage import steps_since_parent
from populations.ratings.bradley_terry import Time
from populations.ratings.result_table import ResultSnapshot
from populations.ratings.results import Rated, ResultColumns, over_seats
from populations.records.rows import CheckpointRow, GenerationRow, RatingsRow
from populations.records.tables import Tables

Known = tuple[float, float]
"""Rating and standard deviation, in Elo."""

MAX_ENTRANTS = 736
"""Number of entrants above which a fit leaves out weights whose ratings nothing needs. Such a fit
takes twice as long as one with a full pool of 512 ghosts (a quarter of a second)."""

SLACK = 16
"""Entrants by which ``MAX_ENTRANTS`` may be exceeded, so that merges are rare."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """Snapshot of the league at one moment, which any thread may read.

    It copies the names of evaluated entrants but not their results: those are snapshots of their
    own, because they change later. Checkpoints and generations only grow during a fit.

    Attributes:
        standing: Evaluated weights that represent policies in standings.
        beginnings: Evaluated weights nearest to those that each policy's generation began with: its
            gain since is the difference of two ratings of one fit.
        recent: Newest evaluated weights of each policy, in order of first evaluation.
        evaluated: Evaluated weights and bots, in order of first evaluation.
        ghosts: Weights of all ghosts.
        results: Results of all evaluation matches.
        links: Results that merges of removed players have left (`populations.league.merging`).
        checkpoints: Origin of each digest of weights, including later ones.
        generations: All generations, by policy and number.
        rated: Rows of a fit that is repeated; None: a new fit.
        populations: Names of all populations.
        num_seats: Number of seats by which results are distinguished.
        num_tallies: Sequence of the last evaluation tally that is covered.
        contenders: By policy, evaluated weights whose checkpoints are retained: the newest ones,
            and the best-rated one of the last fit.
        former_best: Best-rated weights of the last fit, with rating and deviation in it.
        num_records: Number of entrants with evaluation matches.
    """

    standing: tuple[Rated, ...]
    beginnings: tuple[Rated, ...]
    recent: tuple[tuple[Rated, ...], ...]
    evaluated: tuple[Rated, ...]
    ghosts: tuple[Rated, ...]
    results: ResultSnapshot[Rated]
    links: ResultSnapshot[Rated]
    checkpoints: Mapping[Digest, CheckpointRow]
    generations: Mapping[Entrant, GenerationRow]
    rated: tuple[RatingsRow, ...] | None
    populations: tuple[str, ...]
    num_seats: int
    num_tallies: int
    contenders: Mapping[PolicyId, tuple[Rated, ...]]
    former_best: Mapping[Rated, tuple[float, float]]
    num_records: int


class FitInput(Struct, frozen=True, kw_only=True):
    """Plain data that a fit needs.

    Attributes:
        results: Results of evaluation matches between the entrants of the fit.
        links: Results between them that follow from merged results of removed players.
        parents: By entrant, the rated ancestor whose rating is its prior mean, if there is one.
        times: By trained entrant, its population and the agent steps along its line, including
            those of weights that it copied.
        entrants: Entrants of the fit (`entrants_of`).
        newest: Newest weights of each policy among the entrants.
        known: Snapshot from which all other fields are computed.
    """

    results: ResultColumns[Rated]
    links: ResultColumns[Rated]
    parents: dict[Rated, Rated]
    times: dict[Rated, Time]
    entrants: tuple[Rated, ...]
    newest: tuple[Rated, ...]
    known: Snapshot


def snapshot(league: League, *, rated: Mapping[str, RatingsRow] | None = None) -> Snapshot:
    """Take a snapshot for a fit, on the thread that owns the league.

    Args:
        league: Evaluated entrants and their results.
        rated: Rows of a fit that is repeated with the same entrants. None: the fit is a new one.
    """
    tables = league.tables
    standing = (
        (policy.population, Entrant(digest))
        for policy in tables.policies.values()
        if (digest := league.standing_weights(policy)) is not None
    )
    beginnings = (
        (policy.population, Entrant(digest))
        for policy in tables.policies.values()
        if (first := league.first_weights(policy)) is not None
        and (digest := league.nearest_evaluated(policy.population, first)) is not None
    )
    # The order is that of the policies, because the order of first records may differ after a
    # resume.
    recent = [tuple(league.recent.get(policy, ())) for policy in tables.policies]
    former_best = best_of_last_fit(tables)
    return Snapshot(
        standing=tuple(standing),
        beginnings=tuple(beginnings),
        recent=tuple(filter(None, recent)),
        evaluated=tuple(league.evaluated),
        ghosts=tuple(tables.ghosts.by("weights")),
        results=league.results.snapshot(),
        links=league.links.snapshot(),
        checkpoints=league.checkpoints,
        generations=tables.generations,
        rated=None if rated is None else tuple(rated.values()),
        populations=tuple(dict.fromkeys(seat.population for seat in league.seats)),
        num_seats=league.num_rated_seats,
        num_tallies=tables.last_evaluation_sequence,
        contenders=find_contenders(league, recent, former_best),
        former_best=former_best,
        num_records=len(tables.records),
    )


def entrants_of(known: Snapshot) -> list[Rated]:
    """Return the entrants of a fit, in an order that a resume reproduces.

    All evaluated entrants are included, because results with removed weights connect the others. If
    there are too many, the oldest whose ratings nothing needs are left out; they are soon merged
    (`populations.controller.result_merging`). A repeated fit has the entrants of the first one.
    """
    if known.rated is not None:
        return [(row.population, entrant) for row in known.rated for entrant in row.entrants]
    evaluated = [
        rated
        for rated in known.evaluated
        if is_external(rated[1]) or Digest(rated[1]) in known.checkpoints
    ]
    num_over = len(evaluated) - MAX_ENTRANTS - SLACK
    if num_over <= 0:
        return evaluated
    asked = asked_for(known)
    left_out = {*islice((rated for rated in evaluated if rated not in asked), num_over)}
    return [rated for rated in evaluated if rated not in left_out]


def players_of(known: Snapshot) -> set[Rated]:
    """Return the entrants that standings list: policies, ghosts and external players."""
    evaluated = {*known.evaluated}
    external = (rated for rated in evaluated if is_external(rated[1]))
    return {*known.standing, *evaluated.intersection(known.ghosts), *external}


def asked_for(known: Snapshot) -> set[Rated]:
    """Return the evaluated entrants whose ratings are needed for decisions or displays.

    They are players, weights that generations began with, and each policy's newest and best-rated
    weights.
    """
    return {
        *players_of(known),
        *known.beginnings,
        *chain.from_iterable(known.recent),
        *known.former_best,
    }


def fit_input(known: Snapshot) -> FitInput:
    """Return the input of a fit, computed from a snapshot."""
    chosen = dict.fromkeys(entrants_of(known))
    newest = [
        next((rated for rated in reversed(line) if rated in chosen), None) for line in known.recent
    ]
    results = known.results.select(chosen)
    # With one population and two seats each pair plays in both orders, so seats can be ignored.
    # Several populations have a scale each, and with many seats not all orders are played.
    if len(known.populations) == 1 and known.num_seats == 2:
        results = over_seats(results)
    return FitInput(
        results=results,
        links=known.links.select(chosen),
        parents=parents_of(known.checkpoints, chosen),
        times=times_of(known, chosen),
        entrants=tuple(chosen),
        newest=tuple(rated for rated in newest if rated is not None),
        known=known,
    )


def times_of(known: Snapshot, chosen: Iterable[Rated]) -> dict[Rated, Time]:
    """Return, by chosen entrant, its population and the agent steps trained along its line."""
    # A policy's own agent steps are not used, because a copy has the skill of its donor's steps.
    steps: dict[Digest, float] = {}
    times: dict[Rated, Time] = {}
    for rated in chosen:
        path: list[CheckpointRow] = []
        origin = known.checkpoints.get(Digest(rated[1]))
        if origin is None:
            continue
        at: CheckpointRow | None = origin
        # Walk up to weights whose steps are known, so that each checkpoint is passed once.
        while at is not None and at.weights_digest not in steps:
            path.append(at)
            at = None if at.parent is None else known.checkpoints.get(at.parent)
        done = 0.0 if at is None else steps[at.weights_digest]
        for row in reversed(path):
            done += steps_since_parent(
                row,
                origins=known.checkpoints,
                generations=known.generations,
                unknown=row.agent_steps,
            )
            steps[row.weights_digest] = done
        times[rated] = (rated[0], done)
    return times


def parents_of(
    checkpoints: Mapping[Digest, CheckpointRow], chosen: Iterable[Rated]
) -> dict[Rated, Rated]:
    """Return the nearest chosen ancestor of each chosen entrant that has one."""
    by_population: dict[str, dict[str, Rated]] = {}
    for rated in chosen:
        by_population.setdefault(rated[0], {})[rated[1]] = rated
    parents: dict[Rated, Rated] = {}
    for named in by_population.values():
        for entrant, ancestor in _nearest(checkpoints, named):
            parents[named[entrant]] = named[ancestor]
    return parents


def _nearest(
    checkpoints: Mapping[Digest, CheckpointRow], named: Mapping[str, Rated]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a named entrant and its nearest named ancestor.

    Each checkpoint between them is visited only once, even with many descendants.
    """
    # `passed` has the nearest named ancestor of each visited checkpoint; None: there is none.
    passed: dict[str, str | None] = {}
    for entrant in named:
        path: list[str] = []
        found: str | None = None
        origin = checkpoints.get(Digest(entrant))
        while origin is not None and (above := origin.parent) is not None:
            if above in named:
                found = above
                break
            if above in passed:
                found = passed[above]
                break
            passed[above] = None
            path.append(above)
            origin = checkpoints.get(above)
        passed.update(dict.fromkeys(path, found))
        if found is not None and found != entrant:
            yield entrant, found


def best_of_last_fit(tables: Tables) -> dict[Rated, Known]:
    """Return the best-rated weights of the last fit, with rating and deviation in it."""
    return {
        (row.population, entrant): (rating, deviation)
        for row in tables.ratings.values()
        for entrant, rating, deviation in zip(
            row.best, row.best_ratings, row.best_deviations, strict=True
        )
    }


def find_contenders(
    league: League, recent: Iterable[Iterable[Rated]], former_best: Iterable[Rated]
) -> dict[PolicyId, tuple[Rated, ...]]:
    """Return the evaluated weights of each policy whose checkpoints are retained.

    Args:
        league: League with the origins of weights.
        recent: Newest evaluated weights of each policy.
        former_best: Best-rated weights of the last fit.
    """
    lines: dict[PolicyId, dict[Rated, None]] = {}
    for rated in chain(former_best, *recent):
        origin = league.checkpoints.get(Digest(rated[1]))
        if origin is not None and origin.state == "present":
            lines.setdefault(origin.policy, {})[rated] = None
    return {policy: tuple(line) for policy, line in lines.items()}
