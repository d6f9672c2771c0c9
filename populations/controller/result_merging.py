"""Merges of results of removed players, which bound the time of a fit and the number of rows.

Weights are removed once no directory has them: their checkpoint was removed, and no present ghost
has them. Removed weights stay in the fit if a decision or display needs their ratings, and the
newest others while there is room. Results of the rest are merged into what they imply about
remaining players (`populations.league.merging`). Training results are removed once their player
cannot be drawn any more, or its policy's weights were replaced. Old generations of a policy are
merged into one. All this happens when results are merged, or the pool of ghosts is full.

It happens just before ratings are fitted, so that a fit that is repeated after a crash reads the
same results. In a run without evaluation, which fits nothing, it happens when ghosts are thinned.

Rows of checkpoints are removed with the results, as each assignment makes one. A row stays while
its directory exists, a policy or ghost names it, its weights have results, or a present generation
began with it. The children of a removed row take its parent as theirs, and the agent steps between
are added up (`CheckpointRow.since_parent`). So the nearest rated ancestor of every remaining row,
and the agent steps since it, stay the same, and with them the ratings. The event
``checkpoint_rows_removed`` lists removed rows, by which `arena verify` sums up what was trained.

Old rows of generations are removed, too, as PBT makes one with each decision, hundreds of thousands
in a run of weeks. Rows that stay are each policy's first and present one, those of recorded
checkpoints, those with sums or training results of their own, and the newest ones, from which rules
of exploring learn. The event ``generation_rows_removed`` has the content of removed rows, from
which views, replays and `arena verify` read it.

Tests: `tests/populations/controller/test_result_merging.py`,
`tests/populations/controller/test_checkpoint_rows.py`,
`tests/populations/controller/test_generation_rows.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter

from msgspec.structs import replace

from arena.types import (
    Digest,
    Entrant,
    is_external,
    is_trainee,
    policy_of_trainee,
    population_of,
    trainee_entrant,
)
from populations.config.run_config import RunConfig
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.rating_input import MAX_ENTRANTS, SLACK, asked_for, snapshot
from populations.controller.state.epoch import Phase, Settings
from populations.controller.state.fits import Fits
from populations.controller.state.goals import StopGoals
from populations.controller.state.state import Indexes
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import (
    CHECKPOINTS_REMOVED,
    GENERATIONS_REMOVED,
    checkpoint_data,
    first_of_line,
    generation_data,
    steps_since_parent,
)
from populations.league.merging import MERGED, Merge, apply_merge, settled_points
from populations.ratings.results import Rated
from populations.records.rows import CheckpointRow, GenerationRow, Json, PolicyRow
from populations.records.tables import Tables
from populations.storage.store import named_by

BATCH = 16
"""Least number of removed evaluated weights for a merge, so that merges are rare."""

MAX_MERGED = 256
"""Evaluated weights that are merged at once, in a tenth of a second of the controller's thread. The
bound matters for an old run that is resumed. It is not smaller because rare, long fits must each
merge as many weights as were evaluated meanwhile."""

RECENT_GENERATIONS = 8
"""Newest generations of a policy that have sums and training results of their own."""

MANY_FORGOTTEN = 256
"""Entrants with outdated training results from which on these are removed, even if too few
evaluated weights can be merged."""

MAX_FORGOTTEN = 1024
"""Entrants whose training results are removed at once; most of them were never evaluated."""


def merge(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> None:
    """Merge results of removed players, if there are enough of them.

    It is called just before a fit of ratings, or in a run that never fits.
    """
    if phase.name != "training":
        return
    config, tables, league = settings.config, tx.tables, indexes.league
    # The cheap checks come first, because most often nothing is to be merged. The count of weights
    # that could not be merged is not durable, so a deterministic run must not decide by it.
    num_kept = 0 if config.deterministic else indexes.fits.num_kept_evaluated
    is_crowded = len(league.evaluated) > max(MAX_ENTRANTS, num_kept) + SLACK
    names = settings.setup.populations
    populations = [name for name in names if is_crowded or _is_full(config, tables, name)]
    if not populations:
        return
    gone = _gone(league) if is_crowded else []
    # With evaluation, training results are removed alone only if there are many.
    enough = MANY_FORGOTTEN if config.evaluation.share else BATCH
    found: list[Merge] = []
    for population in populations:
        into = _into(league, population, gone)
        # Entrants are sorted, so that a resumed run removes the same ones.
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
            # The points are computed below, from the other fields.
            points=(),
            advantages=() if ratings is None else ratings.advantages,
        )
        found.append(replace(one, points=_points(indexes.fits, one)))
    if found:
        # Rows of checkpoints are removed first, because the results to merge still name some.
        remove_checkpoints(league, indexes.goals, tx, populations)
    for one in found:
        _apply(league, indexes.opponent_pools, tx, one)
    if found:
        # Rows of generations are removed after the merges, which refer to them.
        remove_generations(league, tx, populations)
    # If fewer could be merged than allowed, try again only when there are more evaluated weights.
    if is_crowded and len(gone) < MAX_MERGED:
        indexes.fits.num_kept_evaluated = len(league.evaluated)


def _apply(league: League, opponent_pools: OpponentPools, tx: Transaction, found: Merge) -> None:
    tx.follow(apply_merge(league, found))
    # The last fit covered all merged records, as later ones are of weights that still exist.
    num_gone = len(found.gone)
    for ratings in tx.tables.ratings.values():
        tx.put(replace(ratings, num_records=ratings.num_records - num_gone))
    tx.add_event(MERGED, found.population, **found.data())
    if any(found.folds()):
        # Otherwise pools would count the results of a merged generation twice.
        opponent_pools.forget_results()


def _gone(league: League) -> list[tuple[str, CheckpointRow]]:
    """Return population and origin of removed evaluated weights for which a fit has no room.

    The oldest come first, over all populations, because one fit rates all of them.
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
    """Return entrants to merge in a population, by the generation that takes their sums."""
    found: defaultdict[Entrant, list[Entrant]] = defaultdict(list)
    policies = league.tables.policies
    recent = {
        name: max(row.generation + 1 - RECENT_GENERATIONS, 0) for name, row in policies.items()
    }
    for own, made in gone:
        if own != population:
            continue
        # A policy without a row has no recent generations, so its weights keep their own one.
        number = max(made.generation, recent.get(made.policy, 0))
        generation = trainee_entrant(made.policy, generation=number)
        found[generation].append(Entrant(made.weights_digest))
    for name, row in policies.items():
        if row.population != population:
            continue
        if former := _former_generations(league, row, recent[name]):
            found[trainee_entrant(name, generation=recent[name])] += former
    return {generation: tuple(merged) for generation, merged in found.items()}


def _points(fits: Fits, merge: Merge) -> tuple[tuple[str, Entrant, float], ...]:
    """Return strengths (Elo) of the merged weights and of their opponents."""

    def is_rated(rated: Rated) -> bool:
        return is_external(rated[1]) or fits.ratings(rated[0]).index(rated[1]) is not None

    points = settled_points(
        fits.league,
        [(merge.population, gone) for gone in merge.gone if not is_trainee(gone)],
        estimate=fits.estimate,
        is_rated=is_rated,
        advantage=merge.advantage,
    )
    # Points are rounded, because the event contains many of them.
    return tuple((*rated, round(point, 1)) for rated, point in points.items())


def _former_generations(league: League, policy: PolicyRow, oldest: int) -> list[Entrant]:
    """Return a policy's generations before ``oldest`` with sums or training results, ascending.

    Generations with training results from before the weights were last replaced are left out.
    """
    first = first_of_line(league.tables.generations, policy.trainee)
    trained = set(league.payoff.generations(policy.policy))
    summed = {
        number
        for name, number in map(policy_of_trainee, league.sums(policy.population))
        if name == policy.policy
    }
    # Results from before the weights were replaced are removed by `_forgotten` and never merged.
    others = {number for number in trained if number < first}
    former = sorted(number for number in (trained | summed) - others if number < oldest)
    return [trainee_entrant(policy.policy, generation=number) for number in former]


def _forgotten(config: RunConfig, league: League, population: str) -> Iterator[Entrant]:
    """Yield entrants whose training results no longer influence the choice of opponents."""
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
            # Results from before the policy's weights were replaced say nothing about its present.
            if row is not None and row.population == population and generation < first[name]:
                yield entrant
            continue
        made = league.checkpoints.get(Digest(entrant))
        if made is None or made.state != "deleted" or made.weights_digest in ghosts:
            continue
        row = tables.policies.get(made.policy)
        # Results against recent checkpoints count for their policy's latest one, until they are as
        # old as a ghost.
        if (
            row is not None
            and row.population == population
            and made.agent_steps < row.agent_steps - recent
        ):
            yield entrant


MAX_CHECKPOINTS = 4096
"""Rows that are removed at once, a bound that matters for an old run that is resumed."""


def remove_checkpoints(
    league: League, goals: StopGoals, tx: Transaction, populations: Collection[str]
) -> None:
    """Remove the oldest rows of checkpoints to which nothing refers, in some populations."""
    going = _checkpoints_to_go(league, goals, populations)
    if not going:
        return
    tables = tx.tables
    for row in [row for row in tables.checkpoints.values() if row.parent in going]:
        if row.weights_digest not in going:
            tx.put(_closed_up(league, row, going))
    gone = sorted(going.values(), key=attrgetter("assignment_id", "key"))
    for row in gone:
        tx.delete(row)
    named: list[Json] = [checkpoint_data(row) for row in gone]
    tx.add_event(CHECKPOINTS_REMOVED, checkpoints=named)


def _closed_up(
    league: League, row: CheckpointRow, going: Mapping[Digest, CheckpointRow]
) -> CheckpointRow:
    """Return a row whose parent is replaced by its nearest ancestor that is not removed."""
    origins, generations = league.checkpoints, league.tables.generations
    steps, parent = steps_since_parent(row, origins=origins, generations=generations), row.parent
    # Copied weights may repeat a digest within a line, so the walk could be endless.
    seen = set[Digest]()
    while parent is not None and parent not in seen and (before := going.get(parent)) is not None:
        seen.add(parent)
        # The steps are known, because rows without a recorded generation are never removed.
        steps += steps_since_parent(before, origins=origins, generations=generations)
        parent = before.parent
    return replace(row, parent=parent, since_parent=steps)


def _checkpoints_to_go(
    league: League, goals: StopGoals, populations: Collection[str]
) -> dict[Digest, CheckpointRow]:
    """Return the rows to remove, the oldest, by digest of their weights."""
    stays = _weights_referred_to(league, goals)
    generations = league.tables.generations
    found: list[CheckpointRow] = []
    num_of = defaultdict[Digest, int](int)
    for row in league.tables.checkpoints.values():
        num_of[row.weights_digest] += 1
        generation = generations.get(row.trainee)
        if (
            row.state == "deleted"
            and row.weights_digest not in stays
            and population_of(row.policy) in populations
            and generation is not None
        ):
            found.append(row)
    # Weights of several checkpoints have only one as origin, so they stay; they are rare.
    found = [row for row in found if num_of[row.weights_digest] == 1]
    # The rows are sorted, so that a resumed run removes the same ones.
    found.sort(key=attrgetter("assignment_id", "key"))
    return {row.weights_digest: row for row in found[:MAX_CHECKPOINTS]}


def _weights_referred_to(league: League, goals: StopGoals) -> set[Digest]:
    """Return the weights whose rows are needed, whether or not their directories exist."""
    tables = league.tables
    # Results of evaluation and of training name weights.
    found = {Digest(entrant) for _, entrant in league.tables.records}
    found.update(Digest(entrant) for entrant in league.payoff.entrants())
    for ratings in tables.ratings.values():
        found.update(map(Digest, (*ratings.entrants, *ratings.best, *ratings.former_best)))
    keys = {ghost.checkpoint for ghost in tables.ghosts.values()}
    for policy in tables.policies.values():
        keys.update(named_by(policy))
        # Gains of a generation are measured from the weights that it began with.
        first = league.first_checkpoint(policy)
        if first is not None:
            found.add(first.weights_digest)
            found.update(() if first.parent is None else (first.parent,))
    rows = (tables.checkpoints[key] for key in keys if key in tables.checkpoints)
    found.update(row.weights_digest for row in rows)
    if goals.player is not None:
        # A resume needs these rows to count matches of present generations for the goal.
        present = {policy.policy: policy.generation for policy in tables.policies.values()}
        found.update(
            row.weights_digest
            for row in tables.checkpoints.values()
            if present.get(row.policy) == row.generation
        )
    return found


KEPT_GENERATIONS = 2048
"""Newest rows of a population that stay: more than rules of exploring learn from, which are at most
1000 of one role (`populations.pbt.model_based.MAX_GENERATIONS`)."""

GENERATIONS_BATCH = 64
"""Least number of rows to remove at once, so that removals are rare."""

MAX_GENERATIONS = 2048
"""Rows that are removed at once, a bound that matters for an old run that is resumed."""


def remove_generations(league: League, tx: Transaction, populations: Collection[str]) -> None:
    """Remove the oldest rows of generations to which nothing refers, in some populations."""
    gone = _generations_to_go(league, populations)[:MAX_GENERATIONS]
    if len(gone) < GENERATIONS_BATCH:
        return
    for row in gone:
        tx.delete(row)
    tx.add_event(GENERATIONS_REMOVED, generations=[generation_data(row) for row in gone])


def _generations_to_go(league: League, populations: Collection[str]) -> list[GenerationRow]:
    """Return the rows of generations to remove, the oldest first."""
    found: list[GenerationRow] = []
    stays: set[Entrant] | None = None
    for population in populations:
        rows = [row for row in league.tables.generations.values() if row.population == population]
        if len(rows) < KEPT_GENERATIONS + GENERATIONS_BATCH:
            continue
        # The search for references is slow, so it runs only if there are enough old rows.
        stays = stays or _generations_referred_to(league)
        old = rows[: len(rows) - KEPT_GENERATIONS]
        found += [row for row in old if row.generation and row.entrant not in stays]
    return found


def _generations_referred_to(league: League) -> set[Entrant]:
    """Return the generations whose rows are needed."""
    tables = league.tables
    found = {row.trainee for row in tables.policies.values()}
    found.update(row.trainee for row in tables.checkpoints.values())
    found.update(league.payoff.entrants())
    found.update(entrant for _, entrant in league.tables.records)
    return found
