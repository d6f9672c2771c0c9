"""The checkpoints that rows need, and the disk work that decisions require.

The disk work is idempotent, and a resume repeats it for every row
that does not record it as done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from arena.checkpoints.publish import link_ghost, remove_directory
from arena.errors import CheckpointError
from arena.types import (
    PlayerId,
)
from arena.wire.messages import Evaluate, Train, named_references
from populations.records.rows import AssignmentRow, CheckpointRow, GameRow, GhostRow, PolicyRow
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


def link_ghosts(root: Path, ghosts: Iterable[GhostRow]) -> list[PlayerId]:
    """Make the directories of ghosts.

    Returns:
        Ghosts whose directories exist now. Failures are logged, and tried again at the next resume.
    """
    linked = []
    for ghost in ghosts:
        try:
            link_ghost(root, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
        except CheckpointError as error:
            # The row says that it is not linked, so the run goes on and a resume tries again.
            logger.error("ghost %s could not be linked: %s", ghost.player, error)
        else:
            linked.append(ghost.player)
    return linked


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
