"""Repair of single damaged rows in a journal whose structure is sound.

A row that follows from others is made again: sums over tallies are added up, ratings are fitted. A
detail that never changes is taken from the last backup. Any other damaged row, such as a policy's,
has no second place: then the whole journal is restored (`populations.audit.repair`).

Tests: `tests/populations/audit/test_row_mending.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from populations.audit.tally_checks import refold
from populations.config.run_file import RunFile, learner_setup
from populations.errors import StorageError
from populations.league.league import League
from populations.league.merging import merges
from populations.records.rows import AssignmentRow, EventRow, Json, Row
from populations.records.tables import (
    ARCHIVED,
    PAIRS,
    RATINGS,
    RECORDS,
    TABLES,
    Table,
)
from populations.storage.database import connect_reader, storage_errors
from populations.storage.journal import Journal, JournalReader
from populations.storage.loading import last_archive, split_rows

SUMS: tuple[Table[Any], ...] = (RECORDS, PAIRS)
MENDED = "rows_mended"

Rowids = Mapping[Table[Any], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Damage:
    """Damaged rows by table, and the backup's details that stand for some of them."""

    rowids: Rowids
    details: Sequence[Row]


def mend_rows(path: Path, *, backup: Path, run_file: RunFile, utc: str) -> bool:
    """Mend damaged rows, under the run's lock; a repetition after a kill goes on.

    Args:
        path: Journal with a sound structure.
        backup: Last backup, which may be missing or damaged.
        run_file: Content of run.yaml.
        utc: Time of the event.

    Returns:
        Whether every damaged row was mended.

    Raises:
        StorageError: If the disk refuses.
    """
    damage = _find(path, backup)
    if damage is None or not damage.rowids:
        return False
    data: dict[str, Json] = {table.name: len(found) for table, found in damage.rowids.items()}
    with Journal.open(path) as journal:
        journal.mend(damage.rowids, damage.details)
        if any(table in damage.rowids for table in SUMS) and not _add_up(journal, path, run_file):
            return False
        # A kill in between leaves no ratings, which the next epoch of the run fits.
        fitted = _fit(journal, run_file) if RATINGS in damage.rowids else []
        number = journal.load().num_events + 1
        event = EventRow(sequence=number, time=utc, kind=MENDED, subject="", data=data)
        journal.commit([*fitted, event])
    return True


def _find(path: Path, backup: Path) -> _Damage | None:
    """Return the damaged rows; None: some of them cannot be mended."""
    rowids: dict[Table[Any], Sequence[int]] = {}
    details: list[Row] = []
    with storage_errors(path), contextlib.closing(connect_reader(path)) as connection:
        for table in TABLES:
            sound, damaged = split_rows(connection, table)
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
    return _Damage(rowids=rowids, details=details)


def _of_backup(backup: Path, table: Table[Any]) -> Mapping[int, Any]:
    try:
        with storage_errors(backup), contextlib.closing(connect_reader(backup)) as connection:
            return split_rows(connection, table)[0]
    except StorageError:
        return {}


def _is_final(row: object) -> bool:
    # What was open at the backup may have ended since.
    return not isinstance(row, AssignmentRow) or row.status != "queued"


def _add_up(journal: Journal, path: Path, run_file: RunFile) -> bool:
    """Make the sums over tallies again, in their order; False if some tallies are gone."""
    setup = learner_setup(run_file, root=Path())
    try:
        with JournalReader(path) as reader:
            folded = refold(
                reader.all_tallies(),
                seats=setup.seats,
                half_life_matches=run_file.config.payoffs.half_life_matches,
                mixes_teammates=bool(setup.agent_seats),
                merges=merges(reader.all_events()),
            )
    except (StorageError, ValueError):
        return False
    with storage_errors(path), contextlib.closing(connect_reader(path)) as connection:
        before = {table: list(split_rows(connection, table)[0]) for table in SUMS}
    journal.mend(before, [*folded.records.values(), *folded.pairs.values()])
    return True


def _fit(journal: Journal, run_file: RunFile) -> list[Row]:
    # Here: no other repair needs what a fit imports.
    from populations.controller.rating_fit import fit_input, fit_ratings, snapshot

    tables = journal.load()
    setup = learner_setup(run_file, root=Path())
    league = League.fold(
        tables,
        seats=setup.seats,
        half_life_matches=run_file.config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
    )
    fitted = fit_ratings(fit_input(snapshot(league, tables)))
    return [ratings.row for ratings in fitted.values() if ratings.row is not None]
