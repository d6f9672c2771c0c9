"""Detection of acknowledged work that a run directory has lost.

A journal that has lost its last commits (a damaged WAL, an older copy, a copy without its WAL) is
consistent in itself, so it is compared with other files. `status.json` is written after the commits
that it counts, and a checkpoint is trained only from recorded checkpoints. A kill leaves none of
these signs, because a checkpoint that was published but not recorded was never acknowledged.

Tests: `tests/populations/storage/test_recovery.py`, `tests/faults/test_lost_work.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arena.checkpoints.files import read_manifest, resolve_key
from arena.checkpoints.manifest import Manifest
from arena.errors import CheckpointError
from populations.errors import JournalOlder, WorkLost
from populations.records.rows import CheckpointRow, GhostRow, Json
from populations.records.tables import Tables
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.recovery import missing_directories, unrecorded_checkpoints
from populations.storage.status import STATUS, believable, committed, read_status, write_status

COUNTERS = {
    "agent_steps": "agent steps",
    "matches": "matches",
    "assignments_finished": "assignments",
    "events": "events",
}
"""Counts of `committed`, with their words in messages."""

MAX_NAMED = 3
"""Maximum number of checkpoints that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Lower bounds of the amount of acknowledged work that is lost.

    Attributes:
        counts: Lost amounts above 0, by their names in `COUNTERS`.
        checkpoints: Keys of checkpoints and ghosts that are recorded and missing on disk, or that
            were recorded and are unknown to the journal.
        signs: Sentences about the evidence of the loss; at least one.
    """

    counts: Mapping[str, int]
    checkpoints: tuple[str, ...]
    signs: tuple[str, ...]

    def __str__(self) -> str:
        """Return a sentence about how much is lost, and the evidence."""
        amounts = [f"{count:,} {COUNTERS[name]}" for name, count in self.counts.items()]
        if self.checkpoints:
            amounts.append(f"{len(self.checkpoints):,} checkpoints")
        how_much = f", at least {', '.join(amounts)}" if amounts else ""
        return f"acknowledged work is lost{how_much}: {'; '.join(self.signs)}"

    @property
    def data(self) -> dict[str, Json]:
        """Data of the event about the loss."""
        return {
            **self.counts,
            "checkpoints": list(self.checkpoints[:MAX_NAMED]),
            "num_checkpoints": len(self.checkpoints),
            "reason": "; ".join(self.signs),
        }


def accepted_loss(run_dir: Path, *, accept: bool) -> Loss | None:
    """Return the loss of a run directory if the user accepts it; None if nothing is lost.

    Raises:
        WorkLost: If work is lost and ``accept`` is false; nothing was written.
        StorageError: If the journal cannot be read.
    """
    loss = find_loss(run_dir)
    if loss is not None and not accept:
        raise WorkLost(
            f"{run_dir}: {loss}. Nothing was written: `arena launch --resume --accept-loss` (from "
            "Python accept_loss=True) goes on without it"
        )
    return loss


def find_loss(run_dir: Path) -> Loss | None:
    """Compare a journal with the other files of its run; None if no acknowledged work is lost.

    It writes nothing. The caller has the run's lock, or knows that no process writes.

    Raises:
        StorageError: If the journal cannot be read.
    """
    # Without a journal there is nothing to compare; opening it will report that it is missing.
    if not (run_dir / JOURNAL).exists():
        return None
    # Read the status first. If a controller commits meanwhile, the journal is then the newer one.
    status = read_status(run_dir) or {}
    try:
        with JournalReader(run_dir / JOURNAL, is_alone=True) as reader:
            tables = reader.load(pairs=())
            unreadable = reader.unreadable_commits()
    # A resume migrates an older journal before it checks again. A newer journal cannot be migrated,
    # so its error is raised.
    except JournalOlder:
        return None
    missing = missing_directories(run_dir, tables)
    forgotten = _forgotten(run_dir, tables)
    counted = _counted_more(status, tables)
    signs = [
        *_sign_of_wal(unreadable),
        *_sign_of_status(counted, status),
        *_sign_of_keys(missing, "recorded, and missing"),
        *_sign_of_keys(forgotten, "unknown to the journal, though others were trained from them"),
    ]
    if not signs:
        return None
    by_store = _agent_steps(tables, missing=missing, forgotten=forgotten)
    counted["agent_steps"] = max(counted.get("agent_steps", 0), by_store)
    return Loss(
        counts={name: counted[name] for name in COUNTERS if counted.get(name)},
        checkpoints=(*missing, *forgotten),
        signs=tuple(signs),
    )


def _forgotten(root: Path, tables: Tables) -> dict[str, Manifest]:
    """Return unrecorded checkpoints that must have been recorded, as others descend from them."""
    found: dict[str, Manifest] = {}
    for key in unrecorded_checkpoints(root, tables):
        try:
            found[key] = read_manifest(resolve_key(root, key))
        # A damaged manifest is no evidence; a resume removes the checkpoint as any unrecorded one.
        except CheckpointError:
            continue
    parents = {manifest.parent for manifest in found.values()}
    return {key: manifest for key, manifest in found.items() if manifest.digest in parents}


def _counted_more(status: Mapping[str, Json], tables: Tables) -> dict[str, int]:
    """Return the amounts by which the counts of `status.json` exceed those of the journal."""
    # A status that was copied from another run is no evidence about this run.
    if status.get("run") != tables.run.run:
        return {}
    more = {name: believable(status.get(name)) - count for name, count in committed(tables).items()}
    return {name: count for name, count in more.items() if count > 0}


def renew_status(run_dir: Path) -> None:
    """Replace a `status.json` that counts more than the journal; the caller has the lock.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    with JournalReader(run_dir / JOURNAL, is_alone=True) as reader:
        tables = reader.load(pairs=())
    if _counted_more(read_status(run_dir) or {}, tables):
        write_status(
            run_dir,
            {"run": tables.run.run, "epoch": tables.run.epoch, **committed(tables)},
        )


def _agent_steps(
    tables: Tables,
    *,
    missing: Mapping[str, CheckpointRow | GhostRow],
    forgotten: Mapping[str, Manifest],
) -> int:
    """Return a lower bound of the agent steps that are lost with checkpoints."""
    lost = 0
    for policy in tables.policies.values():
        newest = max(
            (known.agent_steps for known in forgotten.values() if known.policy == policy.policy),
            default=0,
        )
        lost += max(newest - policy.agent_steps, 0)
        if policy.checkpoint in missing:
            left = [
                row.agent_steps
                for row in tables.checkpoints.by("present").get(policy.policy, {}).values()
                if row.key not in missing
            ]
            lost += policy.agent_steps - max(left, default=0)
    return lost


def _sign_of_wal(num_commits: int) -> list[str]:
    if not num_commits:
        return []
    return [f"{num_commits:,} commits in {JOURNAL}-wal, which is damaged, cannot be read"]


def _sign_of_status(counted: Mapping[str, int], status: Mapping[str, Json]) -> list[str]:
    if not counted:
        return []
    told = ", ".join(
        f"{believable(status[name]):,} {COUNTERS[name]} (the journal {more:,} less)"
        for name, more in counted.items()
    )
    return [f"{STATUS} has counted {told}"]


def _sign_of_keys(keys: Mapping[str, object], what: str) -> list[str]:
    if not keys:
        return []
    named = [*keys][:MAX_NAMED]
    rest = f" and {len(keys) - len(named):,} more" if len(keys) > len(named) else ""
    return [f"{', '.join(named)}{rest}: {what}"]
