"""Input of a fit of ratings: entrants, results and lineage as a league has them at one moment.

The league goes on changing while a fit runs. So the controller's thread takes a `Snapshot` of what
is known, which copies next to nothing, and everything else follows from that.
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
"""Entrants from which on weights that nothing asks for leave the fit: it then takes twice the time
of one with a full pool of 512 ghosts (a quarter of a second)."""

SLACK = 16
"""Entrants beyond that number, so that merges are seldom."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """The league at one moment; any thread may read it.

    Taking it copies the names of those that were evaluated, not what they played: results, which
    change later, are snapshots of their own, and checkpoints and generations only grow during a
    fit.

    Attributes:
        standing: Evaluated weights that policies' standings are about.
        beginnings: The evaluated weights nearest to those that each policy's generation began with:
            what it has gained since is the difference of two ratings of one fit.
        recent: The newest evaluated weights of each policy, in order of first evaluation.
        evaluated: Evaluated weights and bots, in order of first evaluation.
        ghosts: Weights of all ghosts.
        results: Results of all evaluation matches.
        links: Results left by players that are gone (`populations.league.merging`).
        checkpoints: The origin of each weights digest, of later ones too.
        generations: All of them, by policy and number.
        rated: The rows of a fit to be repeated; None: a new one.
        populations: All of them.
        num_seats: Number of seats that results are filed under.
        num_tallies: Sequence of the last evaluation tally that is covered.
        contenders: By policy, evaluated weights whose checkpoints are kept: the newest ones, and
            the best-rated one of the last fit.
        former_best: The best-rated ones of the last fit, with rating and deviation there.
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
        links: Differences between them, as results of players that are gone tell.
        parents: The rated entrant whose rating is the prior mean, for those that have one.
        times: Population of those that were trained, and the agent steps of their line, copies
            included.
        entrants: Entrants of the fit (`entrants_of`).
        newest: Newest weights of each policy among them.
        known: Snapshot that the rest is chosen from.
    """

    results: ResultColumns[Rated]
    links: ResultColumns[Rated]
    parents: dict[Rated, Rated]
    times: dict[Rated, Time]
    entrants: tuple[Rated, ...]
    newest: tuple[Rated, ...]
    known: Snapshot


def snapshot(league: League, *, rated: Mapping[str, RatingsRow] | None = None) -> Snapshot:
    """Take what a fit may need, on the thread that owns the league.

    Args:
        league: Evaluated entrants and their results.
        rated: The rows of a fit to be repeated. None: whose ratings decide something now.
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
    # The order is that of the policies, which a resume has, too; a policy's first record may be
    # another one then.
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
    """Return the entrants of a fit, in an order that a resume has, too.

    All that were evaluated: results with weights that no player has any more say how far apart the
    others are. Where they are too many, the oldest of those are left out for which nothing asks;
    soon they are merged (`populations.controller.result_merging`). A fit that is repeated has those
    of the first one.
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
    """Return the entrants that are players of the standings."""
    evaluated = {*known.evaluated}
    external = (rated for rated in evaluated if is_external(rated[1]))
    return {*known.standing, *evaluated.intersection(known.ghosts), *external}


def asked_for(known: Snapshot) -> set[Rated]:
    """Return the evaluated entrants whose ratings decide something or are shown.

    Players, where generations began, each policy's newest and best-rated ones.
    """
    return {
        *players_of(known),
        *known.beginnings,
        *chain.from_iterable(known.recent),
        *known.former_best,
    }


def fit_input(known: Snapshot) -> FitInput:
    """Take out of a snapshot what a fit needs."""
    chosen = dict.fromkeys(entrants_of(known))
    newest = [
        next((rated for rated in reversed(line) if rated in chosen), None) for line in known.recent
    ]
    results = known.results.select(chosen)
    # Evaluation plays each pair in both orders. Sides of several populations have a scale each, and
    # of many seats not all orders are played.
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
    """Return how long each chosen entrant was trained: agent steps along its line."""
    # A policy's own count will not do: a copy of a policy that is ahead has its skill at once, and
    # a copy of one that is behind has lost nothing by that.
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
    """Return pairs of a named entrant and its nearest named ancestor.

    Every checkpoint between named ones is passed once, whoever descends from it.
    """
    # `passed` has the nearest named ancestor of each checkpoint on the way, None without one.
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
    """Return the best-rated weights of the last fit, with what it knew of them."""
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
    """Return the evaluated weights of each policy whose checkpoints are kept.

    Args:
        league: Knows the checkpoints.
        recent: The newest evaluated weights of each policy.
        former_best: The best-rated ones of the last fit.
    """
    lines: dict[PolicyId, dict[Rated, None]] = {}
    for rated in chain(former_best, *recent):
        origin = league.checkpoints.get(Digest(rated[1]))
        if origin is not None and origin.state == "present":
            lines.setdefault(origin.policy, {})[rated] = None
    return {policy: tuple(line) for policy, line in lines.items()}
