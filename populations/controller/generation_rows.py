"""Rows of generations that are old and that nothing refers to: they go.

PBT makes one with each decision, hundreds of thousands in a run of weeks. The first one of each
policy stays, the present one, those of recorded checkpoints, those that have sums or training
results of their own, and the newest ones, which rules of exploring learn from. What the others said
is in the event ``generation_rows_removed``, from where views, replays and `arena verify` read it.

It happens after results were merged (`result_merging`), in a run whose pool is full.

Tests: `tests/populations/controller/test_generation_rows.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from arena.types import Entrant
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.removed_rows import GENERATIONS, generation_data
from populations.records.rows import GenerationRow

KEPT_ROWS = 2048
"""Newest rows of a population that stay: rules of exploring learn from 1000 at most, of one role,
and not from all of those (`populations.pbt.model_based.MAX_GENERATIONS`)."""

BATCH = 64
"""Rows that are to go before something is done about them: it is done seldom."""

MAX_REMOVED = 2048
"""Rows that go at once: an old run that is resumed has very many."""


def remove(league: League, tx: Transaction, populations: Collection[str]) -> None:
    """Remove the oldest rows of some populations that nothing refers to."""
    gone = _going(league, populations)[:MAX_REMOVED]
    if len(gone) < BATCH:
        return
    for row in gone:
        tx.delete(row)
    tx.add_event(GENERATIONS, generations=[generation_data(row) for row in gone])


def _going(league: League, populations: Collection[str]) -> list[GenerationRow]:
    """Return the rows to remove, the oldest first."""
    found: list[GenerationRow] = []
    stays: set[Entrant] | None = None
    for population in populations:
        rows = [row for row in league.tables.generations.values() if row.population == population]
        if len(rows) < KEPT_ROWS + BATCH:
            continue
        # Most often nothing is to be done, and little is looked at.
        stays = stays or _referred_to(league)
        old = rows[: len(rows) - KEPT_ROWS]
        found += [row for row in old if row.generation and row.entrant not in stays]
    return found


def _referred_to(league: League) -> set[Entrant]:
    """Return the generations whose rows are needed."""
    tables = league.tables
    found = {row.trainee for row in tables.policies.values()}
    found.update(row.trainee for row in tables.checkpoints.values())
    found.update(league.payoff.entrants())
    found.update(entrant for _, entrant in league.tables.records)
    return found
