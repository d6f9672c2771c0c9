"""Which checkpoints may go, and the disk work that decisions ask for.

Deciding (`retained`) is pure; the disk work is idempotent and done again at resume for every row
that does not say that it was done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from arena.checkpoints.publish import link_ghost, remove_directory
from arena.errors import CheckpointError
from arena.types import AssignmentId, PlayerId, PolicyId, Seating
from arena.wire.messages import Evaluate, Train
from populations.types import AssignmentRow, CheckpointRow, GhostRow, PolicyRow

logger = logging.getLogger(__name__)


def retained(
    *,
    policies: Mapping[PolicyId, PolicyRow],
    checkpoints: Mapping[str, CheckpointRow],
    ghosts: Mapping[PlayerId, GhostRow],
    assignments: Mapping[AssignmentId, AssignmentRow],
    keep: int | None,
    milestones_every_agent_steps: int | None,
    pinned: Collection[str] = (),
) -> list[str]:
    """What is left over when everything that must be retained has been: keys that may be doomed.

    Retained are every policy's current checkpoint (its donor's after an exploit), its newest
    ``keep``, the sources of ghosts that are not linked yet, everything that an open assignment
    names, milestones, and ``pinned``.

    Args:
        policies: All.
        checkpoints: Candidates; only present ones are looked at.
        ghosts: All, or all that are not linked.
        assignments: The open ones.
        keep: How many of each policy; None keeps everything.
        milestones_every_agent_steps: Of each policy, the first present checkpoint at or after each
            multiple of this.
        pinned: Keys of the best, of the champion.

    Returns:
        Sorted keys.

    Raises:
        ValueError: If ``keep`` is below 1.
    """
    if keep is None:
        return []
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    present: dict[PolicyId, list[CheckpointRow]] = {}
    for row in checkpoints.values():
        if row.state == "present":
            present.setdefault(row.policy, []).append(row)
    needed = set(pinned)
    needed.update(row.checkpoint for row in policies.values() if row.checkpoint is not None)
    needed.update(ghost.checkpoint for ghost in ghosts.values() if not ghost.linked)
    for assignment in assignments.values():
        if assignment.status == "queued":
            needed.update(named_keys(assignment.message))
    for rows in present.values():
        rows.sort(key=newest_last)
        needed.update(row.key for row in rows[-keep:])
        if milestones_every_agent_steps is not None:
            needed.update(_milestones(rows, every_agent_steps=milestones_every_agent_steps))
    return sorted(row.key for rows in present.values() for row in rows if row.key not in needed)


def newest_last(row: CheckpointRow) -> tuple[int, int, int]:
    """Sort key of one policy's checkpoints by age."""
    return (row.agent_steps, row.learner_updates, row.assignment_id)


def named_keys(message: Train | Evaluate) -> Iterator[str]:
    """Directories that a learner needs to carry out an assignment."""
    if isinstance(message, Train):
        for trainee in message.trainees:
            if trainee.checkpoint is not None:
                yield trainee.checkpoint.key
            if trainee.initial_weights is not None:
                yield trainee.initial_weights.key
        seatings: Iterable[Seating] = message.opponents
    else:
        seatings = (pairing.seating for pairing in message.pairings)
    for seating in seatings:
        for player in seating.players:
            if player.weights is not None:
                yield player.weights.key


def link_ghosts(root: Path, ghosts: Iterable[GhostRow]) -> list[PlayerId]:
    """Make the directories of ghosts.

    Returns:
        Whose directories are there now. What could not be done is logged, and tried again at the
        next resume.
    """
    linked = []
    for ghost in ghosts:
        try:
            link_ghost(root, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
        except CheckpointError as error:
            logger.error("ghost %s could not be linked: %s", ghost.player, error)
        else:
            linked.append(ghost.player)
    return linked


def remove_doomed(root: Path, keys: Iterable[str]) -> list[str]:
    """Remove the directories of doomed checkpoints.

    Returns:
        The keys whose directories are gone. What could not be done is logged, and tried again at
        the next resume.
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


def _milestones(rows: list[CheckpointRow], *, every_agent_steps: int) -> Iterator[str]:
    """The oldest of each interval between multiples; the interval before the first has none."""
    seen = {0}
    for row in rows:
        interval = row.agent_steps // every_agent_steps
        if interval not in seen:
            seen.add(interval)
            yield row.key
