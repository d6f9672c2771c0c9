"""Merges of results of players that are gone, where a fit of all of them would take too long.

Weights are gone once no directory has them: their checkpoint was removed, and they are no ghost or
one that was thinned. Those that something asks for stay all the same, and the newest others as long
as the fit has room for them; of the rest stays what they say about these
(`populations.league.merging`). Training results go once the player cannot be drawn any more, and
those of a policy before its weights were replaced. Generations that a policy has left long ago
become one. That happens as results are merged, and where the pool of ghosts is full.

All of it happens as ratings are about to be fitted, so a fit that is repeated after a crash reads
the same results. In a run without evaluation, which fits nothing, it happens as ghosts are thinned.

Tests: `tests/populations/controller/test_result_merging.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import structs

from arena.types import Digest, Entrant, is_external, is_trainee, policy_of_trainee, trainee_entrant
from populations.config.run_config import RunConfig
from populations.controller import checkpoint_rows, generation_rows
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.rating_fit import MAX_ENTRANTS, SLACK, asked_for, snapshot
from populations.controller.state.fits import Fits
from populations.controller.state.indexes import Indexes
from populations.controller.state.phase import Phase
from populations.controller.state.settings import Settings
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import first_of_line
from populations.league.merging import MERGED, Merge, apply_merge, settled_points
from populations.ratings.results import Rated
from populations.records.rows import CheckpointRow, PolicyRow
from populations.records.tables import Tables

BATCH = 16
"""Evaluated weights that are gone before something is done about them: it is done seldom."""

MAX_MERGED = 256
"""Evaluated weights that are merged at once, a tenth of a second of the controller's thread. An old
run that is resumed has very many; and where fits take long, and so are seldom, as many must go with
each as come meanwhile."""

RECENT_GENERATIONS = 8
"""Newest generations of a policy that have sums and training results of their own."""

MANY_FORGOTTEN = 256
"""Entrants whose training results can go, from which on they do without evaluated weights."""

MAX_FORGOTTEN = 1024
"""Entrants whose training results go at once; there are many for each that was evaluated."""


def merge(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> None:
    """Merge results of players that are gone, if there are enough.

    Ratings are to be fitted now, or never are.
    """
    if phase.name != "training":
        return
    config, tables, league = settings.config, tx.tables, indexes.league
    # Most often nothing is to be done, and little is looked at.
    # A resume looks again at what could not go, so a run that is to be the same does each time.
    num_kept = 0 if config.deterministic else indexes.fits.num_kept_evaluated
    is_crowded = len(league.evaluated) > max(MAX_ENTRANTS, num_kept) + SLACK
    names = settings.setup.populations
    populations = [name for name in names if is_crowded or _is_full(config, tables, name)]
    if not populations:
        return
    gone = _gone(league) if is_crowded else []
    # Training results alone may be many between two evaluations.
    enough = MANY_FORGOTTEN if config.evaluation.share else BATCH
    found: list[Merge] = []
    for population in populations:
        into = _into(league, population, gone)
        # Entrants are sorted, so that a resumed run forgets the same ones.
        forgotten = sorted(_forgotten(config, league, population))[:MAX_FORGOTTEN]
        if sum(map(len, into.values())) < BATCH and len(forgotten) < enough:
            continue
        ratings = indexes.fits.ratings(population).row
        one = Merge(
            population=population,
            num_tallies=tables.num_tallies,
            pair_deviation=0.0 if ratings is None else ratings.pair_deviation,
            into=into,
            forgotten=tuple(forgotten),
            advantages=() if ratings is None else ratings.advantages,
        )
        found.append(replace(one, points=_points(indexes.fits, one)))
    if found:
        # Checkpoints go before the merges, whose results name rows of them.
        checkpoint_rows.remove(league, indexes.goals, tx, populations)
    for one in found:
        _apply(league, indexes.opponent_pools, tx, one)
    if found:
        # Generations go after the merges, which name rows of them.
        generation_rows.remove(league, tx, populations)
    # Results that could not go now are looked at again only when there are more.
    if is_crowded and len(gone) < MAX_MERGED:
        indexes.fits.num_kept_evaluated = len(league.evaluated)


def _apply(league: League, opponent_pools: OpponentPools, tx: Transaction, found: Merge) -> None:
    tx.follow(apply_merge(league, found))
    # The last fit knew them all: what was evaluated since is not gone.
    num_gone = len(found.gone)
    for ratings in tx.tables.ratings.values():
        tx.put(structs.replace(ratings, num_records=ratings.num_records - num_gone))
    tx.add_event(MERGED, found.population, **found.data())
    if any(found.folds()):
        # Pools would count the results of a removed generation twice.
        opponent_pools.forget_results()


def _gone(league: League) -> list[tuple[str, CheckpointRow]]:
    """Return population and origin of evaluated weights that are gone, for which a fit has no room.

    The oldest come first; of all populations, for one fit rates them.
    """
    asked = asked_for(snapshot(league))
    gone = [
        (rated[0], made)
        for rated in league.evaluated
        if rated not in asked
        and (made := league.checkpoints.get(Digest(rated[1]))) is not None
        and made.state == "deleted"
    ]
    gone.sort(key=lambda one: (one[1].assignment_id, one[1].weights_digest))
    num_over = len(league.evaluated) - MAX_ENTRANTS
    return gone[: min(max(num_over, 0), MAX_MERGED)]


def _is_full(config: RunConfig, tables: Tables, population: str) -> bool:
    thinned_to = config.ghosts.thinned_to
    if thinned_to is None:
        return False
    ghosts = tables.ghosts.values()
    present = sum(ghost.population == population and ghost.is_present for ghost in ghosts)
    return present >= thinned_to


def _into(
    league: League, population: str, gone: Iterable[tuple[str, CheckpointRow]]
) -> dict[Entrant, tuple[Entrant, ...]]:
    """Return what is merged in a population, by policy and generation that takes its sums."""
    found: defaultdict[Entrant, list[Entrant]] = defaultdict(list)
    policies = league.tables.policies
    recent = {
        name: max(row.generation + 1 - RECENT_GENERATIONS, 0) for name, row in policies.items()
    }
    for own, made in gone:
        if own != population:
            continue
        # All generations of a retired policy are former ones, and stay as they are.
        number = max(made.generation, recent.get(made.policy, 0))
        generation = trainee_entrant(made.policy, generation=number)
        found[generation].append(Entrant(made.weights_digest))
    for name, row in policies.items():
        if row.population != population:
            continue
        if former := _former_generations(league, row, recent[name]):
            found[trainee_entrant(name, generation=recent[name])] += former
    return {generation: tuple(merged) for generation, merged in found.items()}


def _points(fits: Fits, merge: Merge) -> dict[Rated, float]:
    """Return strengths of the weights that are merged, and of those that they met, in Elo."""

    def is_rated(rated: Rated) -> bool:
        return is_external(rated[1]) or fits.ratings(rated[0]).index(rated[1]) is not None

    points = settled_points(
        fits.league,
        [(merge.population, gone) for gone in merge.gone if not is_trainee(gone)],
        estimate=fits.estimate,
        is_rated=is_rated,
        advantage=merge.advantage,
    )
    # Points are rounded, for there are many in the event.
    return {rated: round(point, 1) for rated, point in points.items()}


def _former_generations(league: League, policy: PolicyRow, oldest: int) -> list[Entrant]:
    """Return a policy's generations before a number that have sums or training results of the line
    which goes on, ascending.
    """
    first = first_of_line(league.tables.generations, policy.trainee)
    trained = set(league.payoff.generations(policy.policy))
    summed = {
        number
        for name, number in map(policy_of_trainee, league.sums(policy.population))
        if name == policy.policy
    }
    # Results from before the weights were replaced are forgotten; until then both stay.
    others = {number for number in trained if number < first}
    former = sorted(number for number in (trained | summed) - others if number < oldest)
    return [trainee_entrant(policy.policy, generation=number) for number in former]


def _forgotten(config: RunConfig, league: League, population: str) -> Iterator[Entrant]:
    """Yield entrants whose training results choose no opponent any more."""
    tables = league.tables
    first = {
        name: first_of_line(tables.generations, row.trainee)
        for name, row in tables.policies.items()
    }
    recent = config.ghosts.every_agent_steps
    ghosts = {row.weights_digest for row in tables.ghosts.values() if row.is_present}
    for entrant in league.payoff.entrants():
        if is_trainee(entrant):
            name, generation = policy_of_trainee(entrant)
            row = tables.policies.get(name)
            # Statistics of replaced weights are about others.
            if row is not None and row.population == population and generation < first[name]:
                yield entrant
            continue
        made = league.checkpoints.get(Digest(entrant))
        if made is None or made.state != "deleted" or made.weights_digest in ghosts:
            continue
        row = tables.policies.get(made.policy)
        # A latest checkpoint is drawn, and then its results count until it is as old as a ghost.
        if (
            row is not None
            and row.population == population
            and made.agent_steps < row.agent_steps - recent
        ):
            yield entrant
