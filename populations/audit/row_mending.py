"""Repair of single damaged rows in a journal whose structure is sound.

A row that follows from others is made again: sums over tallies are added up, ratings are fitted. A
detail that never changes is taken from the last backup. Any other damaged row, such as a policy's,
has no second place: then the whole journal is restored (`populations.audit.repair`).

Tests: `tests/populations/audit/test_tally_checks.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from populations.audit.tally_checks import refold
from populations.config.run_file import RunFile, learner_setup
from populations.errors import StorageError
from populations.league.league import League
from populations.league.merging import merges
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow, EventRow, Json
from populations.records.tables import (
    ARCHIVED,
    PAIRS,
    RATINGS,
    RECORDS,
    TABLES,
    SqlTable,
)
from populations.storage.database import connect_reader, storage_errors
from populations.storage.journal import Journal
from populations.storage.loading import last_archive, split_rows

SUMS: tuple[SqlTable[Any], ...] = (RECORDS, PAIRS)
MENDED = "rows_mended"

Rowids = Mapping[SqlTable[Any], Sequence[int]]


class _Lost(Exception):
    """Tallies that nobody has any more, so that nothing can be added up."""


def mend_rows(path: Path, *, backup: Path, run_file: RunFile, utc: str) -> bool:
    """Mend damaged rows, under the run's lock: all of them or none.

    Args:
        path: Journal with a sound structure.
        backup: Last backup, which may be missing or damaged.
        run_file: Content of run.yaml.
        utc: Time of the event.

    Returns:
        Whether every damaged row was mended; if not, the journal is unchanged.

    Raises:
        StorageError: If the disk refuses.
    """
    found = _find(path, backup)
    if found is None or not found[0]:
        return False
    rowids, details, data = found
    with Journal.open(path) as journal:
        try:
            rows = _made_again(journal, rowids, run_file, utc=utc, data=data)
            journal.mend(rowids, chain(details, rows))
        except _Lost:
            return False
    return True


def _made_again(
    journal: Journal, removed: Rowids, run_file: RunFile, *, utc: str, data: Mapping[str, Json]
) -> Iterator[Row]:
    """Yield rows in the place of removed ones; later ones follow from those before."""
    if PAIRS in removed:
        yield from _sums(journal, run_file)
    if RATINGS in removed:
        yield from _fit(journal, run_file)
    yield EventRow(
        sequence=journal.load().num_events + 1, time=utc, kind=MENDED, subject="", data=data
    )


def _find(path: Path, backup: Path) -> tuple[Rowids, list[Row], dict[str, Json]] | None:
    """Find what others are to replace.

    Returns:
        Rows to remove, damaged ones and all sums if one of them is; the backup's details that stand
        for some of them; the number of damaged ones by table. None: some cannot be mended.
    """
    rowids: dict[SqlTable[Any], Sequence[int]] = {}
    sums: dict[SqlTable[Any], Sequence[int]] = {}
    details: list[Row] = []
    with storage_errors(path), contextlib.closing(connect_reader(path)) as connection:
        for table in TABLES:
            sound, damaged = split_rows(connection, table)
            if table in SUMS:
                sums[table] = [*sound, *damaged]
            if not damaged:
                continue
            rowids[table] = damaged
            if table in ARCHIVED:
                behind = getattr(last_archive(connection, path), table.name)
                kept = [
                    row
                    for key, row in _of_backup(backup, table).items()
                    if key > behind and key not in sound and _is_final(row)
                ]
                if len(kept) < sum(rowid > behind for rowid in damaged):
                    return None
                details += kept
            elif table not in (*SUMS, RATINGS):
                return None
    data: dict[str, Json] = {table.name: len(found) for table, found in rowids.items()}
    # They are added up together, in the order of their first tallies.
    if not rowids.keys().isdisjoint(sums):
        rowids |= sums
    return rowids, details, data


def _of_backup(backup: Path, table: SqlTable[Any]) -> Mapping[int, Any]:
    try:
        with storage_errors(backup), contextlib.closing(connect_reader(backup)) as connection:
            return split_rows(connection, table)[0]
    except StorageError:
        return {}


def _is_final(row: object) -> bool:
    # An assignment that was open at the backup may have ended since.
    return not isinstance(row, AssignmentRow) or row.status != "queued"


def _sums(journal: Journal, run_file: RunFile) -> Iterator[Row]:
    """Make the sums over tallies again, in their order.

    Raises:
        _Lost: If some tallies are gone.
    """
    setup = learner_setup(run_file, root=Path())
    details = journal.details()
    try:
        folded = refold(
            details.all_tallies(),
            seats=setup.seats,
            half_life_matches=run_file.config.payoffs.half_life_matches,
            mixes_teammates=bool(setup.agent_seats),
            repeats_games=setup.repeats_games,
            merges=merges(details.all_events()),
        )
    except (StorageError, ValueError) as error:
        raise _Lost from error
    yield from folded.records.values()
    yield from folded.pairs.values()


def _fit(journal: Journal, run_file: RunFile) -> list[Row]:
    # The import is here because no other repair needs what a fit imports.
    from populations.controller.rating_fit import fit_input, fit_ratings, snapshot

    tables = journal.load()
    setup = learner_setup(run_file, root=Path())
    league = League(
        tables,
        seats=setup.seats,
        half_life_matches=run_file.config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
    )
    fitted = fit_ratings(fit_input(snapshot(league)))
    return [ratings.row for ratings in fitted.values() if ratings.row is not None]
