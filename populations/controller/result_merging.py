"""Merges of results of players that are gone, in a run whose pool of ghosts is full.

Weights are gone once no directory has them: their checkpoint was removed, and they are no ghost or
one that was thinned. Those that the next fit of ratings reads stay all the same; of the others
stays what they say about these (`populations.league.merging`). Training results go once the player
cannot be drawn any more, and those of a policy before its weights were replaced.

All of it happens as ratings are about to be fitted, so a fit that is repeated after a crash reads
the same results.

Tests: `tests/populations/controller/test_result_merging.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from arena.types import Digest, Entrant, PolicyId, is_trainee, policy_of_trainee, trainee_entrant
from populations.controller import checkpoint_rows
from populations.controller.rating_fit import chosen_entrants, snapshot
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.league.lineage import line_of
from populations.league.merging import MERGED, Merge, apply_merge

BATCH = 16
"""Evaluated weights that are gone before something is done about them: it is done seldom."""

MAX_MERGED = 64
"""Evaluated weights that are merged at once: an old run that is resumed has very many."""

MAX_FORGOTTEN = 1024
"""Entrants whose training results go at once; there are many for each that was evaluated."""


def merge(state: ControllerState, tx: Transaction) -> None:
    """Merge results of players that are gone, if ratings are to be fitted now."""
    if state.phase != "training" or state.fitting or not state.ratings_are_stale():
        return
    full = [population for population in state.setup.populations if _is_full(state, population)]
    # Most often nothing is to be done, and little is looked at.
    if not full or len(state.league.records) - len(state.league.evaluated_ghosts) < BATCH:
        return
    tables = state.tables
    stays = {entrant for _, entrant in chosen_entrants(snapshot(state.league, tables))}
    found: list[Merge] = []
    for population in full:
        into = _into(state, population, stays)
        if sum(map(len, into.values())) < BATCH:
            continue
        ratings = state.ratings(population).row
        merge = Merge(
            population=population,
            num_tallies=tables.num_tallies,
            pair_deviation=0.0 if ratings is None else ratings.pair_deviation,
            into=into,
            # In an order that a resumed run has, too.
            forgotten=tuple(sorted(_forgotten(state, population))[:MAX_FORGOTTEN]),
        )
        found.append(merge)
    if found:
        # Before the merges: their results name rows of checkpoints.
        checkpoint_rows.remove(state, tx, full)
    for merge in found:
        _apply(state, tx, merge)


def _apply(state: ControllerState, tx: Transaction, found: Merge) -> None:
    changed = apply_merge(state.league, found)
    for row in changed.gone:
        tx.delete(row)
    for row in changed.kept:
        tx.put(row)
    # The last fit knew them all: what was evaluated since is not gone.
    num_gone = len(found.gone)
    for ratings in state.tables.ratings.values():
        tx.put(replace(ratings, num_records=ratings.num_records - num_gone))
    tx.add_event(MERGED, found.population, **found.data())


def _is_full(state: ControllerState, population: str) -> bool:
    thinned_to = state.config.ghosts.thinned_to
    if thinned_to is None:
        return False
    ghosts = state.tables.ghosts.values()
    present = sum(ghost.population == population and ghost.is_present for ghost in ghosts)
    return present >= thinned_to


def _into(
    state: ControllerState, population: str, stays: set[Entrant]
) -> dict[Entrant, tuple[Entrant, ...]]:
    """Return evaluated weights that are gone, the oldest first, by policy and generation."""
    league = state.league
    gone = sorted(
        (
            made
            for own, entrant in league.records
            if own == population
            and entrant not in stays
            and (made := league.checkpoints.get(Digest(entrant))) is not None
            and made.state == "deleted"
        ),
        key=attrgetter("assignment_id", "weights_digest"),
    )
    found: defaultdict[Entrant, list[Entrant]] = defaultdict(list)
    for made in gone[:MAX_MERGED]:
        generation = trainee_entrant(made.policy, generation=made.generation)
        found[generation].append(Entrant(made.weights_digest))
    return {generation: tuple(merged) for generation, merged in found.items()}


def _forgotten(state: ControllerState, population: str) -> Iterator[Entrant]:
    """Yield entrants whose training results choose no opponent any more."""
    tables, league, lines = state.tables, state.league, _Lines(state)
    recent = state.config.ghosts.every_agent_steps
    ghosts = {row.weights_digest for row in tables.ghosts.values() if row.is_present}
    for entrant in league.payoff.entrants():
        if is_trainee(entrant):
            name, generation = policy_of_trainee(entrant)
            row = tables.policies.get(name)
            # Statistics of replaced weights are about others.
            if row is not None and row.population == population:
                own, present = (
                    lines.first(name, number) for number in (generation, row.generation)
                )
                if own != present:
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


class _Lines:
    """Lines of weights, each of which is looked up once."""

    def __init__(self, state: ControllerState) -> None:
        self._generations = state.tables.generations
        self._first: dict[Entrant, Entrant] = {}

    def first(self, policy: PolicyId, generation: int) -> Entrant:
        """Return the generation with which a line began that a generation belongs to."""
        entrant = trainee_entrant(policy, generation=generation)
        if entrant not in self._first:
            line = line_of(self._generations, entrant)
            self._first.update(dict.fromkeys(line, line[0]))
        return self._first[entrant]
