"""Checkpoints on disk: linking ghosts, removing directories, and the choice of what to retain.

The disk work is idempotent, and a resume repeats it for every row that does not record it as done.

Retained are every policy's current checkpoint (its donor's after an exploit), the donor's that a
pending decision names, every policy's newest ``keep``, the sources of ghosts that are not linked
yet, the first checkpoint of every exploiter (it may restart from it), everything that an open
assignment names, the players of a champion's defeats, milestones, the checkpoints of standings (the
best ones and the champion's), and what a user has pinned.

A decision from all rows would take longer with every checkpoint that a run has ever made. So
`Retention` considers only policies with a checkpoint that is new, or that a row has stopped naming,
since the last decision.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from arena.checkpoints.publish import link_ghost, remove_directory
from arena.errors import CheckpointError, DiskRefused
from arena.types import PlayerId, PolicyId
from arena.wire.messages import Evaluate, Train, named_references
from populations.config.sections import CheckpointsConfig
from populations.records.aggregates import RecordRow
from populations.records.rows import AssignmentRow, CheckpointRow, GameRow, GhostRow, PolicyRow
from populations.records.tables import Tables
from populations.roles import MAIN

logger = logging.getLogger(__name__)


def newest_last(row: CheckpointRow) -> tuple[int, int, int]:
    """Return a key that sorts the checkpoints of one policy by age, the oldest first."""
    # Several checkpoints may have the same agent steps, so updates and assignments decide.
    return (row.agent_steps, row.learner_updates, row.assignment_id)


def named_by(row: PolicyRow | GhostRow | AssignmentRow | GameRow) -> Iterator[str]:
    """Yield the directories that must exist while a row is unchanged, and possibly other keys."""
    match row:
        case PolicyRow():
            if row.checkpoint is not None:
                yield row.checkpoint
            elif row.initial_weights:
                # A ghost to which the policy was reset is needed until the next checkpoint.
                yield row.initial_weights
            if row.pending.get("checkpoint"):
                # The donor's checkpoint is needed until the decision is carried out.
                yield str(row.pending["checkpoint"])
        case GhostRow():
            # A checkpoint is needed to link its ghost, and an exploiter may be reset to its first
            # checkpoint at any time.
            if row.doomed:
                return
            if not row.linked or (row.role != MAIN and row.agent_steps == 0):
                yield row.checkpoint
        case AssignmentRow():
            if row.status == "queued":
                # An open assignment may be sent to a learner again.
                yield from named_keys(row.message)
        case GameRow():
            if row.holds:
                yield from (key for key in row.keys if key)


def named_keys(message: Train | Evaluate) -> Iterator[str]:
    """Yield the directories that a learner needs to carry out an assignment."""
    return (reference.key for reference in named_references(message))


def link_ghosts(
    root: Path, ghosts: Iterable[GhostRow]
) -> tuple[list[PlayerId], list[PlayerId], str]:
    """Create the directories of ghosts as hard links to their checkpoints.

    Returns:
        Ghosts whose directories exist now; ghosts that the disk refused, perhaps for now only; and
        the reason for the last refusal. Failures are logged and repeated at the next resume.
    """
    linked, refused, reason = list[PlayerId](), list[PlayerId](), ""
    for ghost in ghosts:
        try:
            link_ghost(root, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
        except CheckpointError as error:
            # The row stays not linked, so the run can continue, and a resume tries again.
            logger.error("ghost %s could not be linked: %s", ghost.player, error)
            # Only a refusal of the disk can pass; any other error would repeat.
            if isinstance(error, DiskRefused):
                refused.append(ghost.player)
                reason = str(error)
        else:
            linked.append(ghost.player)
    return linked, refused, reason


def remove_doomed(root: Path, keys: Iterable[str]) -> list[str]:
    """Remove the directories of checkpoints and ghosts that are marked for deletion.

    Returns:
        Keys whose directories were removed. Failures are logged and repeated at the next resume.
    """
    removed = []
    for key in keys:
        try:
            remove_directory(root, key)
        except CheckpointError as error:
            logger.error("checkpoint %s could not be removed: %s", key, error)
        else:
            removed.append(key)
    return removed


def milestones(
    rows: list[CheckpointRow], *, every_agent_steps: int, newest: int | None = None
) -> list[str]:
    """Return the first checkpoint at or after each positive multiple of an interval.

    Args:
        rows: Checkpoints of one policy, newest last.
        every_agent_steps: Interval in agent steps.
        newest: Number of milestones to return, the newest ones; None returns all.
    """
    # Interval 0 needs no milestone, as its first checkpoint is the untrained policy.
    first: dict[int, str] = {}
    for row in rows:
        first.setdefault(row.agent_steps // every_agent_steps, row.key)
    first.pop(0, None)
    return list(first.values())[-newest if newest else 0 :]


Standing = Callable[[PolicyRow], str | None]
"""Function from a policy to the key of the checkpoint in the standings; None if it has none."""

RetentionRow = CheckpointRow | PolicyRow | GhostRow | AssignmentRow | RecordRow | GameRow
"""Rows that decide which checkpoints are needed."""

Holder = tuple[str, str | int]
"""Identity of a row that needs checkpoints: its kind and key."""


class Retention:
    """Index of present checkpoints and the rows that need them; used by one thread.

    Every committed row must be passed in, in any order within a transaction; repeating a row
    changes nothing.
    """

    def __init__(self, tables: Tables, kept: CheckpointsConfig) -> None:
        """Index the rows of a journal.

        Args:
            tables: Rows of the journal.
            kept: Number of newest checkpoints to retain, and intervals of milestones and exports.
                Of each policy, the first present checkpoint at or after each multiple is retained.
        """
        self._keep = kept.keep
        # Checkpoints stay after their export, so that the choice does not depend on its duration.
        self._marks = (
            (kept.milestones_every_agent_steps, None),
            (kept.export_every_agent_steps, kept.exported_to_keep),
        )
        self._checkpoints = tables.checkpoints
        self._needs: dict[Holder, tuple[str, ...]] = {}
        self._needed: Counter[str] = Counter()
        self._standing: dict[PolicyId, str | None] = {}
        """Key of each policy's checkpoint in the standings at the last decision."""
        self._to_look_at: set[PolicyId] = set()
        self._moved: set[PolicyId] = set()
        """Policies whose checkpoint in the standings may have changed since the last decision."""
        self._evaluated = True
        """Flag that the checkpoint in the standings may have changed for every policy."""
        rows: tuple[Iterable[RetentionRow], ...] = (
            tables.checkpoints.values(),
            tables.policies.values(),
            tables.ghosts.values(),
            tables.assignments.values(),
            tables.games.values(),
        )
        for row in chain.from_iterable(rows):
            self.apply(row)

    def apply(self, row: RetentionRow) -> None:
        """Update the index with a row that was inserted or changed."""
        match row:
            case CheckpointRow():
                self._to_look_at.add(row.policy)
            case PolicyRow():
                self._moved.add(row.policy)
                self._hold(("policy", row.policy), tuple(named_by(row)))
            case GhostRow():
                self._hold(("ghost", row.player), tuple(named_by(row)))
            case AssignmentRow():
                self._hold(("assignment", row.assignment_id), tuple(named_by(row)))
            case GameRow():
                self._hold(("game", row.game), tuple(named_by(row)))
            # Standings follow lineages, so a record may change those of several policies.
            case RecordRow():
                self._evaluated = True

    def release(self, row: GhostRow | GameRow) -> None:
        """Update the index after a row was deleted."""
        self._hold(("ghost", row.player) if isinstance(row, GhostRow) else ("game", row.game), ())

    def needs(self, key: str) -> bool:
        """Return whether a row, or an episode in progress at a learner, needs a directory."""
        return key in self._needed

    def pin(self, policy: PolicyId, keys: Iterable[str]) -> None:
        """Pin the checkpoints with which a policy's unfinished episodes are played, replacing
        earlier pins.
        """
        self._hold(("episodes", policy), tuple(sorted(set(keys))))

    def pin_rated(self, policy: PolicyId, keys: Iterable[str]) -> None:
        """Pin a policy's best-rated checkpoint and those that may become its best, replacing
        earlier pins.
        """
        self._hold(("rated", policy), tuple(sorted(set(keys))))

    def unneeded(self, tables: Tables, *, standing: Standing) -> list[str]:
        """Return the keys of checkpoints to remove; the caller must mark each one for deletion.

        Args:
            tables: All rows; `apply` has been called for every change since the last decision.
            standing: Function that returns the checkpoint of a policy in the standings.

        Returns:
            Sorted keys.
        """
        if self._keep is None:
            return []
        # Update standings first, as a standing that changes releases its old checkpoint.
        for policy in tables.policies if self._evaluated else self._moved:
            key = standing(tables.policies[policy])
            # No key equals "", so at the first decision every standing counts as changed.
            if self._standing.get(policy, "") != key:
                self._standing[policy] = key
                self._hold(("standing", policy), () if key is None else (key,))
        self._evaluated = False
        self._moved.clear()
        keys = [key for policy in self._to_look_at for key in self._unneeded_of(policy)]
        self._to_look_at.clear()
        # The order of a set may differ after a resume, so sort to make decisions reproducible.
        return sorted(keys)

    def _unneeded_of(self, policy: PolicyId) -> list[str]:
        rows = sorted(self._checkpoints.by("present").get(policy, {}).values(), key=newest_last)
        # `keep` is never 0, for which rows[-0:] would be all rows.
        kept = {row.key for row in rows[-self._keep :]} if self._keep is not None else set()
        for every, newest in self._marks:
            if every:
                kept.update(milestones(rows, every_agent_steps=every, newest=newest))
        kept.update(row.key for row in rows if row.pinned)
        return [row.key for row in rows if row.key not in kept and row.key not in self._needed]

    def _hold(self, holder: Holder, keys: tuple[str, ...]) -> None:
        if self._needs.get(holder, ()) == keys:
            return
        old = self._needs.pop(holder, ())
        # Count new keys before releasing old ones, so that the count of a key in both never is 0.
        if keys:
            self._needs[holder] = keys
            self._needed.update(keys)
        for key in old:
            self._needed[key] -= 1
            if self._needed[key] == 0:
                del self._needed[key]
                # Check the checkpoint's own policy again, which may not be that of the row.
                owner = self._checkpoints.get(key)
                if owner is not None:
                    self._to_look_at.add(owner.policy)
