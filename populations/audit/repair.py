"""`arena verify RUN --repair`: replacement of a damaged journal by its last backup.

Newer manifests on disk are added (`populations.audit.adoption`), and every checkpoint and ghost is
read back: damaged ones are set aside, and their policies fall back. The new journal is completed
under another name and then renamed; the damaged journal stays in the directory for inspection. A
repair that was killed at any moment can be repeated.

Single damaged rows of a journal with a sound structure are replaced in place (`mend_rows`). A row
that follows from other rows is computed again: sums over tallies are added up, ratings are fitted.
Events, tallies and ended assignments never change, so they are copied from the last backup. For any
other damaged row, such as a policy's, there is no second source, and the whole journal is restored.

Tests: `tests/faults/test_repair.py`, `tests/populations/audit/test_tally_checks.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from arena.checkpoints.publish import set_aside
from arena.failpoints import failpoint
from populations.audit.adoption import RESTORED, Note, adopt, survey
from populations.audit.tally_checks import refold
from populations.config.run_file import RUN_FILE, RunFile, content_digest, learner_setup
from populations.errors import JournalCorrupt, JournalForeign, StorageError
from populations.league.league import League
from populations.league.merging import merges
from populations.records.aggregates import Row
from populations.records.rows import BEGINNING, ArchiveRow, AssignmentRow, EventRow, Json, PolicyRow
from populations.records.tables import ARCHIVED, PAIRS, RATINGS, RECORDS, TABLES, SqlTable, Tables
from populations.storage.backup import backup_problem, copy_durably, roll_back
from populations.storage.database import (
    BACKUP,
    JOURNAL,
    SIDE_FILES,
    connect_reader,
    last_archive,
    rename_durably,
    repair_hint,
    split_rows,
    storage_errors,
)
from populations.storage.journal import Journal, JournalReader
from populations.storage.lock import RunLock
from populations.storage.loss import Loss, find_loss, renew_status
from populations.storage.recovery import is_intact, recover
from populations.storage.status import believable, read_status
from populations.storage.store import newest_last

REPAIRING = f"{JOURNAL}.repairing"
"""Name of the new journal before it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Result of a repair.

    Attributes:
        events: Events of the repair in the journal, in order.
        restored: Whether the journal was replaced.
        lost_assignments: Lower bound of the finished assignments that the journal no longer has.
        loss: Acknowledged work that a readable journal has lost; None if none is lost.
    """

    events: list[EventRow]
    restored: bool
    lost_assignments: int
    loss: Loss | None = None


Counters = tuple[int, int, int]
"""Finished assignments, next assignment and epoch; 0 for a number that cannot be read."""


def repair_run(run_dir: Path, *, utc: str | None = None) -> Repair:
    """Repair a run directory, under its lock.

    Args:
        run_dir: Run directory.
        utc: Time of the events; None uses the present time.

    Raises:
        RunInUse: If a controller has the run.
        ConfigError: If run.yaml cannot be read.
        StorageError: If the journal is damaged and there is no usable backup, or it is of another
            release; nothing was changed. If the disk refuses; no needed checkpoint was lost.
        CheckpointError: If the disk refuses.
    """
    with RunLock(run_dir):
        run_file = RunFile.load(run_dir / RUN_FILE)
        now = utc or datetime.now(UTC).isoformat(timespec="milliseconds")
        path = run_dir / JOURNAL
        # Look for a loss first, because the steps after it write to the run, and lose no work.
        loss = _loss(run_dir)
        damage, num_mended = _damage_left(path, other=run_dir / BACKUP, run_file=run_file, utc=now)
        if damage is not None:
            repaired = _restore(run_dir, run_file, damage=damage, utc=now)
            renew_status(run_dir)
            return repaired
        # If rows had to be replaced, the loss can be found only now.
        loss = loss or _loss(run_dir)
        with Journal.open(path) as journal:
            # The journal is sound, but checkpoints may be damaged; their events follow this one.
            tables = journal.load()
            if loss is not None:
                journal.commit(_event_rows([("work_lost", "", loss.data)], tables, utc=now))
            _recover(run_dir, journal, utc=now)
            _renew_backup(run_dir, journal, utc=now)
        # The loss is reported now, so the next resume must not find it again.
        renew_status(run_dir)
        return Repair(
            events=_events(run_dir, after=tables.num_events - num_mended),
            restored=False,
            lost_assignments=0,
            loss=loss,
        )


def _loss(run_dir: Path) -> Loss | None:
    # If the journal cannot be read, it is restored, and that reports what is lost.
    with contextlib.suppress(StorageError):
        return find_loss(run_dir)
    return None


def _renew_backup(run_dir: Path, journal: Journal, *, utc: str) -> None:
    """Replace a damaged backup by a new copy of the sound journal."""
    problem = backup_problem(run_dir / BACKUP)
    if problem is not None:
        notes: list[Note] = [("backup_renewed", "", {"damage": problem})]
        journal.commit(_event_rows(notes, journal.load(), utc=utc))
        copy_durably(run_dir / JOURNAL, run_dir / BACKUP)


def _damage_left(path: Path, *, other: Path, run_file: RunFile, utc: str) -> tuple[str | None, int]:
    """Replace a journal's damaged rows where that is possible.

    Args:
        path: Path of the journal, or of a copy.
        other: Backup or journal that may have the same rows.
        run_file: Content of run.yaml.
        utc: Time of the events.

    Returns:
        Why the journal still cannot be used (None if it can), and the number of events added.
    """
    damage = _damage(path)
    if damage is None or not path.exists():
        return damage, 0
    # If the structure is damaged, too, no row can be replaced.
    with contextlib.suppress(JournalCorrupt):
        if mend_rows(path, backup=other, run_file=run_file, utc=utc):
            return _damage(path), 1
    return damage, 0


def _damage(path: Path) -> str | None:
    """Return why a journal cannot be used; None if all of it can be read."""
    if not path.exists():
        return f"{path}: there is no journal"
    try:
        # Opening checks only the structure; a flipped bit in a text is found by decoding its row.
        Journal.open(path).close()
        _read_all(path)
    # A journal of another release is intact, and restoring an older one would lose the run.
    except JournalForeign:
        raise
    except JournalCorrupt as error:
        return str(error).removesuffix(repair_hint(path))
    return None


def _read_all(path: Path) -> Tables:
    with JournalReader(path) as reader:
        reader.integrity_check()
        # Skip archived rows: a lost archive file is no reason to replace the journal.
        left = _left(reader)
        for _ in reader.all_assignments(after=left.assignments):
            continue
        for _ in reader.all_events(after=left.events):
            continue
        for _ in reader.all_tallies(after=left.tallies):
            continue
        return reader.load()


def _left(reader: JournalReader) -> ArchiveRow:
    """Return the last range of rows that moved to an archive file."""
    return next((row for row in reversed(reader.archives()) if row.file), BEGINNING)


def _restore(run_dir: Path, run_file: RunFile, *, damage: str, utc: str) -> Repair:
    path = run_dir / JOURNAL
    temporary = run_dir / REPAIRING
    try:
        with storage_errors(path):
            _remove(temporary)
            before = _copy_of_backup(run_dir, temporary, run_file, damage=damage, utc=utc)
            # Read counters before the damaged journal is renamed, as they may be ahead of the
            # backup's.
            counters = _counters(run_dir)
            aside = f"{JOURNAL}-corrupt-{re.sub('[^0-9TZ]', '', utc.replace('+00:00', 'Z'))}"
            with Journal.open(temporary) as journal:
                failpoint("repair.copied")
                # Commit before `_recover`, which removes unrecorded checkpoints.
                rows, lost = _restored_rows(
                    run_dir,
                    run_file,
                    journal.load(),
                    counters,
                    damage=damage,
                    aside=aside,
                    utc=utc,
                )
                journal.commit(rows)
                failpoint("repair.adopted")
                _recover(run_dir, journal, utc=utc)
            failpoint("repair.ready")
            # Side files are moved, too, as SQLite would replay the damaged WAL into the new
            # journal. After a crash in this loop there is no journal; the next repair moves the
            # rest.
            for suffix in ("", *SIDE_FILES):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{path}{suffix}", run_dir / f"{aside}{suffix}")
                    failpoint("repair.aside")
            # The repair becomes effective with this rename.
            rename_durably(temporary, path)
    finally:
        _remove(temporary)
    return Repair(
        events=_events(run_dir, after=before.num_events), restored=True, lost_assignments=lost
    )


def _remove(path: Path) -> None:
    """Remove a database with SQLite's side files and the copies that a migration made of it."""
    with storage_errors(path):
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()


def _copy_of_backup(
    run_dir: Path, target: Path, run_file: RunFile, *, damage: str, utc: str
) -> Tables:
    """Copy the backup, check that all of it can be read, and return its rows.

    Raises:
        StorageError: If there is no backup, or it is damaged or of another run.
    """
    backup = run_dir / BACKUP
    try:
        if not backup.exists():
            raise JournalCorrupt(f"there is no {backup}")
        roll_back(backup)
        with storage_errors(backup):
            # Between updates, a backup is a single file without a WAL.
            shutil.copyfile(backup, target)
        left, _ = _damage_left(target, other=run_dir / JOURNAL, run_file=run_file, utc=utc)
        if left is not None:
            raise JournalCorrupt(left)
        tables = _read_all(target)
        if tables.run.run != run_file.run:
            raise JournalCorrupt(f"{backup} is of the run {tables.run.run}")
    except JournalCorrupt as error:
        raise StorageError(
            f"{damage}; it cannot be repaired, for there is no usable backup: {error}. Nothing was "
            "changed"
        ) from error
    return tables


def _restored_rows(
    run_dir: Path,
    run_file: RunFile,
    tables: Tables,
    counters: Counters,
    *,
    damage: str,
    aside: str,
    utc: str,
) -> tuple[list[Row], int]:
    """Return the rows to commit to a restored journal, and a lower bound of lost assignments."""
    found = survey(run_dir, tables, learner_setup(run_file, root=run_dir))
    adoption = adopt(tables, found, since_s=_since_s(run_dir, utc=utc))
    strangers = _set_strangers_aside(run_dir, tables, {**found.damaged, **adoption.refused})
    run = tables.run
    finished, following, epoch = counters
    # These are lower bounds, as only a part of the lost work has left files on the disk.
    lost = max(finished - run.assignments_finished, adoption.num_finished, 0)
    after = replace(
        run,
        state="stopped",
        reason=RESTORED,
        # run.yaml may have changed since the backup.
        configuration=content_digest(run_dir / RUN_FILE),
        # This is at least as high as any epoch that learners have from the lost time.
        epoch=max(run.epoch, epoch),
        # Numbers continue after the highest known one, so that a late result from the lost time
        # matches no new assignment.
        next_assignment=max(run.next_assignment + lost, following),
        agent_steps=run.agent_steps + adoption.agent_steps,
    )
    data: dict[str, Json] = {
        "damage": damage,
        "damaged_journal": aside,
        "backup": BACKUP,
        "assignments_finished": run.assignments_finished,
        "lost_assignments_at_least": lost,
    }
    notes = [("journal_restored", "", data), *adoption.notes, *strangers]
    return [after, *adoption.rows, *_event_rows(notes, tables, utc=utc)], lost


def _since_s(run_dir: Path, *, utc: str) -> float:
    """Return the seconds from the last event in the backup to a repair at ``utc``."""
    with JournalReader(run_dir / REPAIRING) as reader:
        last = reader.events(limit=1, newest=True)
    with contextlib.suppress(ValueError, TypeError, IndexError):
        # Python raises a TypeError if only one of the times has a time zone.
        return (datetime.fromisoformat(utc) - datetime.fromisoformat(last[0].time)).total_seconds()
    # The time is unknown, so no checkpoint is refused because of it.
    return math.inf


def _set_strangers_aside(run_dir: Path, tables: Tables, refused: Mapping[str, str]) -> list[Note]:
    """Set aside directories that the backup does not know and that were not adopted."""
    known = tables.checkpoints.keys() | {ghost.key for ghost in tables.ghosts.values()}
    notes: list[Note] = []
    for key, reason in refused.items():
        if key not in known:
            # The recovery removes unrecorded checkpoints, but users may want to inspect this one.
            set_aside(run_dir, key)
            notes.append(("checkpoint_corrupt", "", {"key": key, "reason": reason}))
    return notes


def _event_rows(notes: Sequence[Note], tables: Tables, *, utc: str) -> list[EventRow]:
    return [
        EventRow(sequence=sequence, time=utc, kind=kind, subject=subject, data=data)
        for sequence, (kind, subject, data) in enumerate(notes, start=tables.num_events + 1)
    ]


def _recover(run_dir: Path, journal: Journal, *, utc: str) -> None:
    # Commit restored rows first, as `recover` decides by the rows of the journal.
    if restored := _restored(run_dir, journal.load(), utc=utc):
        journal.commit(restored)
    rows = recover(run_dir, journal.load(), utc=utc, thorough=True)
    if rows:
        journal.commit(rows)


def _restored(run_dir: Path, tables: Tables, *, utc: str) -> list[Row]:
    """Return the rows of checkpoints and ghosts that are marked as damaged but are intact.

    A policy that was quarantined because of such a checkpoint becomes active again.
    """
    checkpoints = {
        key: replace(row, state="present")
        for key, row in tables.checkpoints.items()
        if row.state == "corrupt" and is_intact(run_dir, row)
    }
    ghosts = [
        replace(row, corrupt=False)
        for row in tables.ghosts.values()
        if row.corrupt and is_intact(run_dir, row)
    ]
    present = [row for row in (tables.checkpoints | checkpoints).values() if row.state == "present"]
    policies: list[PolicyRow] = []
    for policy in tables.policies.values():
        last = tables.checkpoints.get(policy.checkpoint or "")
        own = [row for row in present if row.policy == policy.policy]
        # A policy without an intact checkpoint stays in quarantine, as it would begin from random
        # weights.
        if policy.state == "quarantined" and last is not None and last.state == "corrupt" and own:
            newest = max(own, key=newest_last)
            policies.append(replace(policy, state="active", checkpoint=newest.key))
    notes: list[Note] = []
    notes += [("checkpoint_restored", row.policy, {"key": row.key}) for row in checkpoints.values()]
    notes += [("ghost_restored", row.player, {"key": row.key}) for row in ghosts]
    notes += [("policy_restored", row.policy, {"checkpoint": row.checkpoint}) for row in policies]
    return [*checkpoints.values(), *ghosts, *policies, *_event_rows(notes, tables, utc=utc)]


def _events(run_dir: Path, *, after: int) -> list[EventRow]:
    with JournalReader(run_dir / JOURNAL) as reader:
        return reader.events(after=after)


def _counters(run_dir: Path) -> Counters:
    """Return the highest counters in ``status.json`` and in a damaged journal, if it opens."""
    status = read_status(run_dir) or {}
    found = [(status.get("assignments_finished"), 0, status.get("epoch"))]
    # The journal is damaged or missing, so errors are expected; the status must then suffice.
    with (
        contextlib.suppress(sqlite3.Error, OSError),
        contextlib.closing(connect_reader(run_dir / JOURNAL)) as connection,
    ):
        query = "SELECT assignments_finished, next_assignment, epoch FROM run"
        # This adds no row if the run's row is lost.
        found += connection.execute(query)
    finished, following, epoch = (
        max(map(believable, column)) for column in zip(*found, strict=True)
    )
    return finished, following, epoch


SUMS: tuple[SqlTable[Any], ...] = (RECORDS, PAIRS)
MENDED = "rows_mended"

Rowids = Mapping[SqlTable[Any], Sequence[int]]


class _Lost(Exception):
    """Tallies are lost, so that sums over them cannot be computed again."""


def mend_rows(path: Path, *, backup: Path, run_file: RunFile, utc: str) -> bool:
    """Replace damaged rows, under the run's lock: all of them or none.

    Args:
        path: Journal with a sound structure.
        backup: Last backup, which may be missing or damaged.
        run_file: Content of run.yaml.
        utc: Time of the event.

    Returns:
        Whether every damaged row was replaced; if not, the journal is unchanged.

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
    """Yield rows that replace removed rows; ratings are computed from the pairs before them."""
    if PAIRS in removed:
        yield from _sums(journal, run_file)
    if RATINGS in removed:
        yield from _fit(journal, run_file)
    yield EventRow(
        sequence=journal.load().num_events + 1, time=utc, kind=MENDED, subject="", data=data
    )


def _find(path: Path, backup: Path) -> tuple[Rowids, list[Row], dict[str, Json]] | None:
    """Find damaged rows and their replacements in the backup.

    Returns:
        Rows to remove: all damaged rows, and all rows of sums if one of these is damaged; rows of
            the backup that replace some of them; and the number of damaged rows by table. None if
            some row cannot be replaced.
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
    # Tables of sums are rebuilt together, so that all rows are in the order of their first tallies.
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
    # An assignment that was open at the time of the backup may have ended since.
    return not isinstance(row, AssignmentRow) or row.status != "queued"


def _sums(journal: Journal, run_file: RunFile) -> Iterator[Row]:
    """Yield the rows of sums over tallies, computed again in the order of the tallies.

    Raises:
        _Lost: If some tallies cannot be read.
    """
    setup = learner_setup(run_file, root=Path())
    try:
        folded = refold(
            journal.all_tallies(),
            seats=setup.seats,
            half_life_matches=run_file.config.payoffs.half_life_matches,
            mixes_teammates=bool(setup.agent_seats),
            repeats_games=setup.repeats_games,
            merges=merges(journal.all_events()),
        )
    except (StorageError, ValueError) as error:
        raise _Lost from error
    yield from folded.records.values()
    yield from folded.pairs.values()


def _fit(journal: Journal, run_file: RunFile) -> list[Row]:
    # Import here, because only this kind of repair needs the heavy modules of a fit.
    from populations.controller.rating_fit import fit_ratings
    from populations.controller.rating_input import fit_input, snapshot

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
