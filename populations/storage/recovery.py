"""Recovery from a crash at the start of a resumed run, under the run's lock.

Disk work of committed decisions is repeated, and checkpoints that were published but never recorded
are removed. Every policy's current checkpoint is read back. A policy whose checkpoint is damaged
continues from its newest older one, with an event; if none is left, it is quarantined, never
restarted from random weights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from arena.checkpoints.files import (
    CORRUPT_PREFIX,
    DIRECTORY_NAME,
    list_directories,
    resolve_key,
    verify_directory,
)
from arena.checkpoints.manifest import OPTIMIZER
from arena.checkpoints.publish import link_ghost, remove_directory, set_aside, sweep_temporary
from arena.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing
from arena.types import PlayerId
from populations.errors import StorageError
from populations.records.aggregates import Row
from populations.records.rows import (
    CheckpointRow,
    Deletion,
    EventRow,
    GhostRow,
    Json,
    PolicyRow,
)
from populations.records.tables import Tables
from populations.storage.database import TEMPORARY_FILE, storage_errors
from populations.storage.store import link_ghosts, named_keys, newest_last, remove_doomed

logger = logging.getLogger(__name__)

Damage = Callable[[CheckpointRow], str | None]
"""Function that returns why a checkpoint cannot be used; None if every byte of it is correct."""


def recover(
    root: Path, tables: Tables, *, utc: str | None = None, thorough: bool = False
) -> list[Row]:
    """Repair the directories of checkpoints and ghosts, and return the rows that change.

    Args:
        root: Root of the store.
        tables: Rows of the journal, which stay unchanged: commit the result and load them again.
        utc: Time of the events; None uses the present time.
        thorough: Whether to read back every checkpoint and ghost, not only those from which
            policies continue. Missing directories are found in any case.

    Returns:
        Rows to commit in one transaction; empty after a clean end of the run.

    Raises:
        StorageError: If the disk refuses; no needed checkpoint was lost.
    """
    try:
        sweep(root, tables)
        rows: list[Row] = [*_redo_links(root, tables), *_redo_removals(root, tables)]
        # Several policies may share a checkpoint, so cache the result of reading it.
        damage = cache(lambda row: _damage(root, row))
        # Missing directories are damage even if no policy continues from them, because a later
        # assignment may name them.
        missing = missing_directories(root, tables)
        others = [
            row
            for row in tables.checkpoints.values()
            if row.state == "present" and (thorough or row.key in missing)
        ]
        ghosts = _damaged_ghosts(root, tables, among=None if thorough else missing)
        changes = decide_fallbacks(
            tables,
            damage,
            utc=utc or datetime.now(UTC).isoformat(),
            others=others,
            ghosts=ghosts,
        )
        # Move the directories before the rows are committed. After a crash in between, the next
        # resume finds a missing directory, which is treated as the same damage.
        for row in changes:
            if isinstance(row, CheckpointRow | GhostRow):
                set_aside(root, row.key)
    except CheckpointError as error:
        raise StorageError(f"recovery: {error}") from error
    return [*rows, *changes]


def sweep(root: Path, tables: Tables) -> None:
    """Remove what killed processes have left: temporary files and directories, and unrecorded
    checkpoints.

    Call it only while no learner of the run is alive and no backup is being made: at the run's
    start and end.

    Raises:
        CheckpointError: If the disk refuses.
        StorageError: If the disk refuses.
    """
    with storage_errors(root):
        for path in root.iterdir():
            if TEMPORARY_FILE.fullmatch(path.name) and path.is_file():
                path.unlink()
                logger.info("removed the temporary file %s", path)
    for key in sweep_temporary(root):
        logger.info("removed the temporary directory %s", key)
    for key in unrecorded_checkpoints(root, tables):
        logger.info("removed %s: published, but never recorded", key)
        remove_directory(root, key)


def unrecorded_checkpoints(root: Path, tables: Tables) -> list[str]:
    """Return checkpoints on disk that the journal does not have; directories with other names are
    ignored.
    """
    return [
        key
        for key in list_directories(root, "checkpoints")
        if DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]) and key not in tables.checkpoints
    ]


def missing_directories(root: Path, tables: Tables) -> dict[str, CheckpointRow | GhostRow]:
    """Return recorded checkpoints and ghosts that have no directory and cannot be restored.

    A directory that was set aside as damaged is not missing, although its row says that it is
    present if a kill came before the commit.
    """
    there = {*list_directories(root, "checkpoints"), *list_directories(root, "ghosts")}
    missing: dict[str, CheckpointRow | GhostRow] = {
        row.key: row
        for row in tables.checkpoints.values()
        if row.state == "present" and row.key not in there
    }
    for ghost in tables.ghosts.values():
        # A ghost is a hard link to its checkpoint and can be restored from it.
        if ghost.linked and ghost.is_present and not there & {ghost.key, ghost.checkpoint}:
            missing[ghost.key] = ghost
    aside = {key.rpartition("/")[2] for key in there}
    return {
        key: row
        for key, row in missing.items()
        if not any(name.startswith(f"{CORRUPT_PREFIX}{key.rpartition('/')[2]}") for name in aside)
    }


def decide_fallbacks(
    tables: Tables,
    damage: Damage,
    *,
    utc: str,
    others: Iterable[CheckpointRow] = (),
    ghosts: Mapping[PlayerId, str] | None = None,
) -> list[Row]:
    """Decide about policies, ghosts and assignments with damaged checkpoints; pure but `damage`.

    Args:
        tables: Rows of the journal.
        damage: Check of a checkpoint.
        utc: Time of the events.
        others: Further checkpoints to check.
        ghosts: Reason why each damaged ghost cannot be used.

    Returns:
        Rows of corrupt checkpoints and ghosts, of policies that fall back or are quarantined, of
            open assignments that fail because they name a corrupt directory, and an event for each.
    """
    damaged: dict[str, CheckpointRow | GhostRow] = {}
    rows: list[Row] = []
    events: list[tuple[str, str, dict[str, Json]]] = []

    def is_damaged(row: CheckpointRow) -> bool:
        reason = damage(row)
        if reason is not None and row.key not in damaged:
            # The row stays, because lineage and ratings refer to it.
            damaged[row.key] = replace(row, state="corrupt")
            events.append(("checkpoint_corrupt", row.policy, {"key": row.key, "reason": reason}))
        return reason is not None

    for other in others:
        is_damaged(other)
    for player, reason in (ghosts or {}).items():
        ghost = tables.ghosts[player]
        damaged[ghost.key] = replace(ghost, corrupt=True)
        events.append(("ghost_corrupt", player, {"key": ghost.key, "reason": reason}))
    for policy in tables.policies.values():
        if policy.checkpoint is None:
            continue
        current = tables.checkpoints.get(policy.checkpoint)
        # A checkpoint that is already marked corrupt, or has no row, is damage as well.
        if current is not None and current.state == "present" and not is_damaged(current):
            continue
        changed, event = _fall_back(policy, tables, is_damaged)
        # A policy that is already in quarantine must not get an event at each resume.
        if changed != policy:
            rows.append(changed)
            events.append(event)
    for assignment in tables.assignments.values():
        # The result of an assignment is a function of its message, so a message with a corrupt
        # checkpoint must not be changed; the assignment fails.
        names = sorted(damaged.keys() & set(named_keys(assignment.message)))
        if names:
            reason = f"corrupt: {', '.join(names)}"
            rows.append(replace(assignment, status="failed", reason=reason))
            data: dict[str, Json] = {"failure": "checkpoint", "reason": reason}
            events.append(("assignment_failed", str(assignment.assignment_id), data))
    return [*damaged.values(), *rows, *_event_rows(events, tables, utc=utc)]


def _fall_back(
    policy: PolicyRow, tables: Tables, is_damaged: Callable[[CheckpointRow], bool]
) -> tuple[PolicyRow, tuple[str, str, dict[str, Json]]]:
    """Move a policy back to its newest intact checkpoint; quarantine it if it has none."""
    own = tables.checkpoints.by("present").get(policy.policy, {})
    for row in sorted(own.values(), key=newest_last, reverse=True):
        if not is_damaged(row):
            data: dict[str, Json] = {
                "checkpoint": row.key,
                "agent_steps": row.agent_steps,
                "instead_of": policy.checkpoint,
            }
            # The policy's counters stay, because they count committed work and never decrease.
            return replace(policy, checkpoint=row.key), ("fell_back", policy.policy, data)
    # With `checkpoint=None` the policy would begin again with random weights.
    reason = "no checkpoint of it is left that verifies"
    return (
        replace(policy, state="quarantined"),
        ("quarantined", policy.policy, {"reason": reason}),
    )


def _event_rows(
    events: list[tuple[str, str, dict[str, Json]]], tables: Tables, *, utc: str
) -> list[Row]:
    rows: list[Row] = []
    for sequence, (kind, subject, data) in enumerate(events, start=tables.num_events + 1):
        logger.warning("%s %s: %s", kind, subject, data)
        rows.append(EventRow(sequence=sequence, time=utc, kind=kind, subject=subject, data=data))
    return rows


def _redo_links(root: Path, tables: Tables) -> list[GhostRow]:
    unlinked = [row for row in tables.ghosts.values() if not row.linked and row.is_present]
    return [
        replace(tables.ghosts[player], linked=True) for player in link_ghosts(root, unlinked)[0]
    ]


def _redo_removals(root: Path, tables: Tables) -> list[CheckpointRow | Deletion]:
    marked = [row.key for row in tables.checkpoints.values() if row.state == "doomed"]
    thinned = {row.key: row for row in tables.ghosts.values() if row.doomed}
    return [
        Deletion(row=thinned[key])
        if key in thinned
        else replace(tables.checkpoints[key], state="deleted")
        for key in remove_doomed(root, [*marked, *thinned])
    ]


def _damage(root: Path, row: CheckpointRow | GhostRow) -> str | None:
    """Return why a checkpoint or ghost cannot be used; None if every byte of it is correct."""
    # A ghost plays but is never trained, so its directory has no optimizer.
    without = frozenset({OPTIMIZER} if isinstance(row, GhostRow) else ())
    try:
        manifest = verify_directory(resolve_key(root, row.key), without=without)
    except (CheckpointCorrupt, CheckpointMissing) as error:
        return str(error)
    # An intact directory may be another checkpoint than the recorded one, so compare digests.
    if isinstance(row, GhostRow):
        if manifest.weights_digest != row.weights_digest:
            return f"{row.key}: weights {manifest.weights_digest} instead of {row.weights_digest}"
    elif (manifest.digest, manifest.weights_digest) != (row.digest, row.weights_digest):
        return f"{row.key}: digest {manifest.digest} instead of {row.digest}"
    return None


def is_intact(root: Path, row: CheckpointRow | GhostRow) -> bool:
    """Return whether every byte of a checkpoint or ghost is present and correct."""
    return _damage(root, row) is None


def _damaged_ghosts(
    root: Path, tables: Tables, *, among: Container[str] | None
) -> dict[PlayerId, str]:
    """Return reasons why ghosts cannot be used and could not be restored from their checkpoints.

    Args:
        root: Root of the store.
        tables: Rows of the journal.
        among: Keys of the ghosts to check; None checks all.
    """
    damaged = {}
    for row in tables.ghosts.values():
        # `_redo_links` has just tried to link the ghosts that are not linked.
        if row.linked and row.is_present and (among is None or row.key in among):
            reason = _damage(root, row)
            if reason is not None and not _is_made_again(root, row, tables):
                damaged[row.player] = reason
    return damaged


def _is_made_again(root: Path, row: GhostRow, tables: Tables) -> bool:
    source = tables.checkpoints.get(row.checkpoint)
    # A ghost does not need the optimizer, but its source is linked only if all of it is intact.
    if source is None or source.state != "present" or _damage(root, source) is not None:
        return False
    link_ghost(root, checkpoint_key=row.checkpoint, ghost_key=row.key)
    return True
