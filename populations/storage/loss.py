"""Acknowledged work that a run directory has lost: what the journal forgot, and what it misses.

A journal that went back in time (a damaged WAL, an older copy, a copy without its WAL) is sound by
itself. Other files know more: `status.json` is written after the commits that it counts, and a
checkpoint is trained from recorded ones alone. What a kill leaves is none of these signs: work that
was published and not recorded yet was never acknowledged.

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
"""Counts of `committed`, and what they count."""

MAX_NAMED = 3
"""Most checkpoints that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Least amounts of acknowledged work that is lost.

    Attributes:
        counts: Lost counts by their names in `COUNTERS`, those above 0.
        checkpoints: Checkpoints and ghosts that are recorded and missing, or that were recorded and
            are unknown to the journal.
        signs: Sentences about what shows it; at least one.
    """

    counts: Mapping[str, int]
    checkpoints: tuple[str, ...]
    signs: tuple[str, ...]

    def __str__(self) -> str:
        """Return a sentence: how much is lost, and what shows it."""
        amounts = [f"{count:,} {COUNTERS[name]}" for name, count in self.counts.items()]
        if self.checkpoints:
            amounts.append(f"{len(self.checkpoints):,} checkpoints")
        how_much = f", at least {', '.join(amounts)}" if amounts else ""
        return f"acknowledged work is lost{how_much}: {'; '.join(self.signs)}"

    @property
    def data(self) -> dict[str, Json]:
        """Return its numbers for an event."""
        return {
            **self.counts,
            "checkpoints": list(self.checkpoints[:MAX_NAMED]),
            "num_checkpoints": len(self.checkpoints),
            "reason": "; ".join(self.signs),
        }


def accepted_loss(run_dir: Path, *, accept: bool) -> Loss | None:
    """Return the loss of a run directory, if it is accepted; None: nothing is lost.

    Raises:
        WorkLost: If something is lost and that is not accepted. Nothing was written.
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
    """Compare a journal with what lies beside it; None: nothing acknowledged is lost.

    Writes nothing. The caller has the run's lock, or knows that nobody writes.

    Raises:
        StorageError: If the journal cannot be read.
    """
    # There is nothing to compare without a journal; whoever opens it says so.
    if not (run_dir / JOURNAL).exists():
        return None
    # The status is read first: it is never ahead of the journal that is read after it.
    status = read_status(run_dir) or {}
    try:
        with JournalReader(run_dir / JOURNAL, is_alone=True) as reader:
            tables = reader.load(pairs=())
            unreadable = reader.unreadable_commits()
    # It is brought up to date first. Nothing does that for a newer one: its error ends a resume.
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
    """Return unrecorded checkpoints that were recorded once: others were trained from them."""
    found: dict[str, Manifest] = {}
    for key in unrecorded_checkpoints(root, tables):
        try:
            found[key] = read_manifest(resolve_key(root, key))
        # It says nothing then; a resume removes it as any other unrecorded one.
        except CheckpointError:
            continue
    parents = {manifest.parent for manifest in found.values()}
    return {key: manifest for key, manifest in found.items() if manifest.digest in parents}


def _counted_more(status: Mapping[str, Json], tables: Tables) -> dict[str, int]:
    """Return by how much `status.json` has counted more than the journal."""
    # One that was copied here from another run says nothing about this one.
    if status.get("run") != tables.run.run:
        return {}
    more = {name: believable(status.get(name)) - count for name, count in committed(tables).items()}
    return {name: count for name, count in more.items() if count > 0}


def renew_status(run_dir: Path) -> None:
    """Write `status.json` anew, if it has counted more than the journal. The caller has the lock.

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
    """Return the least number of agent steps that are lost with checkpoints."""
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
