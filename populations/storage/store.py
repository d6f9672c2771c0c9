"""The checkpoints that rows need, the disk work that decisions require, and what may be removed.

The disk work is idempotent, and a resume repeats it for every row that does not record it as done.

Retained are every policy's current checkpoint (its donor's after an exploit), the donor's that a
pending decision names, every policy's newest ``keep``, the sources of ghosts that are not linked
yet, the first checkpoint of every exploiter (it may restart from it), everything that an open
assignment names, the players of a champion's defeats, milestones, the checkpoints of standings (the
best ones and the champion's), and what a user has pinned.

Deciding from all rows takes longer with every checkpoint that a run has ever made. `Retention`
looks only at policies for which something may have become unneeded since the last decision: a
checkpoint is new, or is named by one row less.
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
    """Return the sort key of one policy's checkpoints by age."""
    # Steps alone do not order checkpoints of one step.
    return (row.agent_steps, row.learner_updates, row.assignment_id)


def named_by(row: PolicyRow | GhostRow | AssignmentRow | GameRow) -> Iterator[str]:
    """Yield keys that must exist as long as a row is unchanged; other keys may be among them."""
    match row:
        case PolicyRow():
            if row.checkpoint is not None:
                yield row.checkpoint
            elif row.initial_weights:
                # A ghost's that it was reset to, until it has a checkpoint of its own.
                yield row.initial_weights
            if row.pending.get("checkpoint"):
                # The donor's checkpoint is needed until the decision is carried out.
                yield str(row.pending["checkpoint"])
        case GhostRow():
            # An exploiter may restart from its first checkpoint for ever.
            if row.doomed:
                return
            if not row.linked or (row.role != MAIN and row.agent_steps == 0):
                yield row.checkpoint
        case AssignmentRow():
            if row.status == "queued":
                # A queued assignment may be given out again, as long as it is open.
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
    """Make the directories of ghosts.

    Returns:
        Ghosts whose directories exist now; those that the disk refuses, which it may take later;
        and the words of the last refusal. Failures are logged, and tried again at the next resume.
    """
    linked, refused, reason = list[PlayerId](), list[PlayerId](), ""
    for ghost in ghosts:
        try:
            link_ghost(root, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
        except CheckpointError as error:
            # The row says that it is not linked, so the run goes on and a resume tries again.
            logger.error("ghost %s could not be linked: %s", ghost.player, error)
            # All else would fail again.
            if isinstance(error, DiskRefused):
                refused.append(ghost.player)
                reason = str(error)
        else:
            linked.append(ghost.player)
    return linked, refused, reason


def remove_doomed(root: Path, keys: Iterable[str]) -> list[str]:
    """Remove the directories of doomed checkpoints.

    Returns:
        Keys whose directories are gone. Failures are logged, and tried again at the next resume.
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
    """Return the oldest checkpoint of each interval between multiples, except the first interval.

    Args:
        rows: Checkpoints of one policy, newest last.
        every_agent_steps: Interval in agent steps.
        newest: Number of newest intervals; None: all.
    """
    # Interval 0 needs no milestone: its first checkpoint is the start.
    first: dict[int, str] = {}
    for row in rows:
        first.setdefault(row.agent_steps // every_agent_steps, row.key)
    first.pop(0, None)
    return list(first.values())[-newest if newest else 0 :]


Standing = Callable[[PolicyRow], str | None]
"""Function from a policy to the key of the checkpoint that its standing is about."""

RetentionRow = CheckpointRow | PolicyRow | GhostRow | AssignmentRow | RecordRow | GameRow
"""Rows on which it depends what is needed."""

Holder = tuple[str, str | int]
"""Row that needs checkpoints: its kind and key."""


class Retention:
    """Present checkpoints and the rows that need them. Owned by one thread.

    Every committed row must be passed in, in any order within a transaction; repeating a row
    changes nothing.
    """

    def __init__(self, tables: Tables, kept: CheckpointsConfig) -> None:
        """Index the rows of a journal.

        Args:
            tables: Rows of the journal.
            kept: Number of newest checkpoints to keep, and intervals of milestones and exports: of
                each policy, the first present checkpoint at or after each multiple is kept.
        """
        self._keep = kept.keep
        # Exported checkpoints stay, too: what is kept must not depend on how long an export takes.
        self._marks = (
            (kept.milestones_every_agent_steps, None),
            (kept.export_every_agent_steps, kept.exported_to_keep),
        )
        self._checkpoints = tables.checkpoints
        self._needs: dict[Holder, tuple[str, ...]] = {}
        self._needed: Counter[str] = Counter()
        self._standing: dict[PolicyId, str | None] = {}
        """Key that each policy's standing was about at the last decision."""
        self._to_look_at: set[PolicyId] = set()
        self._moved: set[PolicyId] = set()
        """Policies whose standing may be about other weights than at the last decision."""
        self._evaluated = True
        """Whether that may be so of any policy."""
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
        """Take in a row that was put."""
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
            # Standings are found along lineages, so a record may move those of other policies, too.
            case RecordRow():
                self._evaluated = True

    def release(self, row: GhostRow | GameRow) -> None:
        """Take in that a row was deleted."""
        self._hold(("ghost", row.player) if isinstance(row, GhostRow) else ("game", row.game), ())

    def needs(self, key: str) -> bool:
        """Return whether a row, or a learner's episodes in flight, need a directory."""
        return key in self._needed

    def pin(self, policy: PolicyId, keys: Iterable[str]) -> None:
        """Pin the checkpoints that a policy's episodes in flight are played with, replacing earlier
        pins.
        """
        self._hold(("episodes", policy), tuple(sorted(set(keys))))

    def pin_rated(self, policy: PolicyId, keys: Iterable[str]) -> None:
        """Pin a policy's best-rated checkpoint and those that may become it, replacing earlier
        pins.
        """
        self._hold(("rated", policy), tuple(sorted(set(keys))))

    def unneeded(self, tables: Tables, *, standing: Standing) -> list[str]:
        """Return the keys that need not be retained, if each is marked as doomed every time.

        Args:
            tables: All rows; those changed since the last decision have been passed in.
            standing: Function that tells the pinned checkpoint of each policy.

        Returns:
            Sorted keys.
        """
        if self._keep is None:
            return []
        # Standings are updated before the checkpoints are looked at: one that moves on releases
        # one.
        for policy in tables.policies if self._evaluated else self._moved:
            key = standing(tables.policies[policy])
            # "" is no key: the first decision always differs.
            if self._standing.get(policy, "") != key:
                self._standing[policy] = key
                self._hold(("standing", policy), () if key is None else (key,))
        self._evaluated = False
        self._moved.clear()
        keys = [key for policy in self._to_look_at for key in self._unneeded_of(policy)]
        self._to_look_at.clear()
        # The order of a set is not that of a resumed run.
        return sorted(keys)

    def _unneeded_of(self, policy: PolicyId) -> list[str]:
        rows = sorted(self._checkpoints.by("present").get(policy, {}).values(), key=newest_last)
        # keep is at least 1; rows[-0:] would be all of them.
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
        # New keys are counted before old ones are released, so that a key in both never reaches 0.
        if keys:
            self._needs[holder] = keys
            self._needed.update(keys)
        for key in old:
            self._needed[key] -= 1
            if self._needed[key] == 0:
                del self._needed[key]
                # The checkpoint's own policy decides about it, whichever row released it.
                owner = self._checkpoints.get(key)
                if owner is not None:
                    self._to_look_at.add(owner.policy)
