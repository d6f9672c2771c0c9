"""From evaluation results to the rows of ratings: what the worker thread does.

The league goes on changing meanwhile. So the controller's thread takes a `Snapshot` of what is
known, which copies next to nothing, and everything else follows from that.

Each fit chooses the best-rated checkpoint of each policy. It is that with the highest lower end of
its 95% interval, among the policy's evaluated checkpoints that are kept. Retention never removes it
(`populations.controller.indexes.rated_pins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from arena.types import RANDOM_BOT, Digest, Entrant, PolicyId, is_external
from populations.league.league import League
from populations.league.lineage import steps_since_parent
from populations.league.ratings import Ratings
from populations.ratings.bradley_terry import BradleyTerry, Time
from populations.ratings.fitting.posterior import BoolArray, IntArray
from populations.ratings.model import Z95, E
from populations.ratings.model import Fit as BradleyTerryFit
from populations.ratings.ranks import (
    advantage_table,
    measured_cyclicity,
    open_above,
    rank_intervals,
)
from populations.ratings.result_table import ResultSnapshot
from populations.ratings.results import Rated, ResultColumns, over_seats
from populations.records.rows import CheckpointRow, GenerationRow, RatingsRow
from populations.records.tables import Tables

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


def fit_ratings(fit: FitInput) -> dict[str, Ratings]:
    """Fit all populations together, each scale with its own ``bot:random`` at 0.

    Returns:
        Ratings by population.
    """
    known = fit.known
    anchors = [(population, Entrant(RANDOM_BOT)) for population in known.populations]
    # One fit: populations meet, and their spreads share columns.
    model = BradleyTerry(reduces_bias=True, bends=True)
    fitted = model.fit(
        fit.results,
        links=fit.links,
        entrants=fit.entrants,
        parents=fit.parents,
        times=fit.times,
        anchors=anchors,
        scale_of=itemgetter(0),
    )
    position = {rated: i for i, rated in enumerate(fitted.entrants)}
    deviations = fitted.deviations
    advantages = tuple(advantage_table(fitted, num_seats=known.num_seats).ravel().tolist())
    players = players_of(known)
    unbounded = open_above(fit.results, links=fit.links, anchors=anchors)
    rows, spreads, centres = [], {}, {}
    for population in known.populations:
        own = [rated for rated in fit.entrants if rated[0] == population]
        index = np.array([position[rated] for rated in own], dtype=np.int64)
        spreads[population] = fitted.spread[index]
        newest = [position[rated] for rated in fit.newest if rated[0] == population]
        is_player = np.array([rated in players for rated in own], dtype=bool)
        is_own = np.array([not is_external(entrant) for _, entrant in own], dtype=bool)
        # Zeros where no policy has been rated.
        centres[population] = fitted.spread[newest].sum(axis=0) / max(len(newest), 1)
        ranks = ranks_of(fitted, index, is_player=is_player)
        rows.append(
            RatingsRow(
                population=population,
                entrants=tuple(entrant for _, entrant in own),
                ratings=tuple(fitted.ratings[index].tolist()),
                deviations=tuple(deviations[index].tolist()),
                cyclicity=measured_cyclicity(
                    fitted,
                    _results_of(fit.results, population),
                    scale_of=itemgetter(0),
                ),
                num_tallies=known.num_tallies,
                child_deviation=max(model.child_deviation, fitted.components.child_deviation),
                pair_deviation=fitted.components.pair_deviation,
                misfit=fitted.components.misfit,
                anchor_deviation=fitted.components.anchor_deviation,
                anchor_errors=tuple(fitted.anchor_errors[index].tolist()),
                rank_lows=tuple(low for low, _ in ranks),
                rank_highs=tuple(high for _, high in ranks),
                advantages=advantages,
                open=tuple(rated[1] for rated in own if rated in unbounded),
                optimism=optimism(fitted, candidates=index[is_player & is_own], centre=newest),
            )
        )
    # All that decisions will ask is computed here, on a thread for which nothing waits.
    return {
        row.population: Ratings(row, spreads[row.population], centres[row.population])
        for row in _with_best(known, fitted, rows)
    }


def ranks_of(
    fitted: BradleyTerryFit[Rated], index: IntArray, *, is_player: BoolArray
) -> list[tuple[int, int]]:
    """Return the best and worst rank that each entrant of an index may have among the players.

    Equal weights are one player.
    """
    # The anchor's rank inherits the misfit of results against it.
    off = [
        fitted.components.anchor_deviation * float(fitted.entrants[i][1] == RANDOM_BOT)
        for i in index
    ]
    return rank_intervals(
        fitted.ratings[index],
        spread=np.column_stack([fitted.spread[index], off]),
        is_ranked=is_player,
    )


def _with_best(
    known: Snapshot, fitted: BradleyTerryFit[Rated], rows: Sequence[RatingsRow]
) -> tuple[RatingsRow, ...]:
    if known.rated is not None:
        # A fit that is repeated decides nothing anew.
        return as_decided(rows, known.rated)
    best = best_rated(fitted, known.contenders, former=known.former_best)
    former = tuple(known.former_best)
    return with_best(rows, best, former=former, num_records=known.num_records)


def optimism(fitted: BradleyTerryFit[E], *, candidates: IntArray, centre: Sequence[int]) -> float:
    """Return Elo by which the best of many is rated too high for being the best.

    What is rated best was lucky, too, also in the matches for the championship, as the same matches
    select and rate. A prior as wide as the candidates really lie apart takes that back; how far it
    moves the best one against the population is the answer.

    Args:
        fitted: Has both kinds of ratings.
        candidates: Positions of those who may be champion.
        centre: Positions of the population's newest weights.
    """
    if not len(candidates) or not len(centre):
        return 0.0
    # The best as the champion is chosen: by the lower bound.
    low = fitted.ratings[candidates] - Z95 * fitted.deviations[candidates]
    best = candidates[int(np.argmax(low))]
    moved = fitted.ratings - fitted.shrunk
    # (r - r')_best - mean of (r - r') over the newest, r' the shrunk ratings
    return max(float(moved[best] - moved[list(centre)].mean()), 0.0)


def _results_of(results: ResultColumns[Rated], population: str) -> ResultColumns[Rated]:
    """Return those in which a player of the population took part."""
    # Flags are by entrant, since results refer to entrants by position.
    is_own = np.array([name == population for name, _ in results.entrants], dtype=bool)
    return results.where(is_own[results.first] | is_own[results.second])


Known = tuple[float, float]
"""Rating and standard deviation, in Elo."""

DECIDED = (
    *("best", "best_ratings", "best_deviations", "former_best", "num_records"),
    *("rank_lows", "rank_highs"),
)
"""Fields in which a repeated fit is like the first one; ranks are among the players of then."""

FORGOTTEN = 1.5
"""Growth of a deviation from one fit to the next beyond which the last one knew more."""


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


def best_rated(
    fitted: BradleyTerryFit[Rated],
    contenders: Mapping[PolicyId, Sequence[Rated]],
    *,
    former: Mapping[Rated, Known],
) -> dict[Rated, Known]:
    """Return the weights of each policy with the highest lower end of the 95% interval.

    Their strength never changes, but what ties them to the scale may drop out of later fits: there
    the last fit that knew them well holds.

    Args:
        fitted: Ratings of one fit.
        contenders: Weights of each policy; those that no fit has are left out.
        former: Rating and deviation of the best-rated ones of the last fit.

    Returns:
        Rating and deviation of each.
    """
    position = {rated: i for i, rated in enumerate(fitted.entrants)}

    def bounds(rated: Rated) -> Known | None:
        i, known = position.get(rated), former.get(rated)
        if i is None:
            return known
        now = (float(fitted.ratings[i]), float(fitted.deviations[i]))
        return known if known is not None and now[1] > FORGOTTEN * known[1] else now

    best: dict[Rated, Known] = {}
    for line in contenders.values():
        known = {one: found for one in line if (found := bounds(one)) is not None}
        if known:
            # r - 1.96 sd; of equal ones the first, which is that of the last fit
            first = max(known, key=lambda one: known[one][0] - Z95 * known[one][1])
            best[first] = known[first]
    return best


def with_best(
    rows: Iterable[RatingsRow],
    best: Mapping[Rated, Known],
    *,
    former: Sequence[Rated],
    num_records: int,
) -> tuple[RatingsRow, ...]:
    """Return the rows of a fit with the best-rated weights of each policy.

    Args:
        rows: Rows of the fit, one per population.
        best: Best-rated weights of all populations.
        former: Those of the fit before.
        num_records: Number of entrants with evaluation matches when the fit began.
    """
    found = []
    for row in rows:
        own = {entrant: known for (name, entrant), known in best.items() if name == row.population}
        found.append(
            replace(
                row,
                best=tuple(own),
                best_ratings=tuple(rating for rating, _ in own.values()),
                best_deviations=tuple(deviation for _, deviation in own.values()),
                former_best=tuple(entrant for name, entrant in former if name == row.population),
                num_records=num_records,
            )
        )
    return tuple(found)


def as_decided(rows: Iterable[RatingsRow], before: Iterable[RatingsRow]) -> tuple[RatingsRow, ...]:
    """Return the rows of a repeated fit with the decisions of the first one."""
    decided = {row.population: {name: getattr(row, name) for name in DECIDED} for row in before}
    return tuple(replace(row, **decided.get(row.population, {})) for row in rows)
