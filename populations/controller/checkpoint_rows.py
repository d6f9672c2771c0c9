"""Rows of checkpoints that nothing refers to any more: they go, and lines of weights close up.

A run makes one with each assignment, so they are what grows fastest. A row stays as long as its
directory is there, a policy or a ghost names it, its weights have results, or a generation that
goes on began with it. Of the others the children take the parent, and the agent steps between them
are added up (`CheckpointRow.since_parent`): the nearest rated ancestor of every row that stays, and
the agent steps from there, are as before, so ratings are, too.

It happens where results are merged, in a run whose pool is full. The event
``checkpoint_rows_removed`` names them, with which `arena verify` adds up what was trained.

Tests: `tests/populations/controller/test_checkpoint_rows.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from operator import attrgetter

from msgspec.structs import replace

from arena.types import Digest, population_of
from populations.controller.indexes.stop_goals import StopGoals
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import steps_since_parent
from populations.league.removed_rows import CHECKPOINTS, checkpoint_data
from populations.records.rows import CheckpointRow, Json
from populations.storage.store import named_by

MAX_REMOVED = 4096
"""Rows that go at once: an old run that is resumed has very many."""


def remove(league: League, goals: StopGoals, tx: Transaction, populations: Collection[str]) -> None:
    """Remove the oldest rows of some populations that nothing refers to."""
    going = _going(league, goals, populations)
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
    tx.add_event(CHECKPOINTS, checkpoints=named)


def _closed_up(
    league: League, row: CheckpointRow, going: Mapping[Digest, CheckpointRow]
) -> CheckpointRow:
    """Return a row with its nearest ancestor that stays as the parent."""
    origins, generations = league.checkpoints, league.tables.generations
    steps, parent = steps_since_parent(row, origins=origins, generations=generations), row.parent
    # Copied weights may repeat a digest within a line, so the walk could be a cycle.
    seen = set[Digest]()
    while parent is not None and parent not in seen and (before := going.get(parent)) is not None:
        seen.add(parent)
        # The result is None only where a generation was not recorded; such rows stay.
        steps += steps_since_parent(before, origins=origins, generations=generations)
        parent = before.parent
    return replace(row, parent=parent, since_parent=steps)


def _going(
    league: League, goals: StopGoals, populations: Collection[str]
) -> dict[Digest, CheckpointRow]:
    """Return the rows to remove, by weights."""
    stays = _referred_to(league, goals)
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
    # Equal weights of several checkpoints have one origin; they are too few to matter.
    found = [row for row in found if num_of[row.weights_digest] == 1]
    # The rows are sorted, so that a resumed run removes the same ones.
    found.sort(key=attrgetter("assignment_id", "key"))
    return {row.weights_digest: row for row in found[:MAX_REMOVED]}


def _referred_to(league: League, goals: StopGoals) -> set[Digest]:
    """Return the weights whose rows are needed, whether their directories are there or not."""
    tables = league.tables
    # Results, of evaluation and of training.
    found = {Digest(entrant) for _, entrant in league.tables.records}
    found.update(Digest(entrant) for entrant in league.payoff.entrants())
    for ratings in tables.ratings.values():
        found.update(map(Digest, (*ratings.entrants, *ratings.best, *ratings.former_best)))
    keys = {ghost.checkpoint for ghost in tables.ghosts.values()}
    for policy in tables.policies.values():
        keys.update(named_by(policy))
        # Gains are measured from the weights that a generation began with.
        first = league.first_checkpoint(policy)
        if first is not None:
            found.add(first.weights_digest)
            found.update(() if first.parent is None else (first.parent,))
    rows = (tables.checkpoints[key] for key in keys if key in tables.checkpoints)
    found.update(row.weights_digest for row in rows)
    if goals.player is not None:
        # A resume counts the matches of present generations by these rows.
        present = {policy.policy: policy.generation for policy in tables.policies.values()}
        found.update(
            row.weights_digest
            for row in tables.checkpoints.values()
            if present.get(row.policy) == row.generation
        )
    return found
