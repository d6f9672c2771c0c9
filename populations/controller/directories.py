"""What the controller does with checkpoints' directories; each answers with an event."""

from __future__ import annotations

import logging
from pathlib import Path

from arena.checkpoints.files import resolve_key, verify_directory
from arena.checkpoints.manifest import Manifest
from arena.checkpoints.publish import link_ghost, remove_directory
from arena.errors import ArenaError, CheckpointError, DiskRefused
from arena.failpoints import failpoint
from arena.types import LearnerId, PlayerId
from arena.wire.messages import Failed, Finished
from populations.controller.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    Event,
    GhostsLinked,
)
from populations.types import GhostRow

logger = logging.getLogger(__name__)


def verify(run_dir: Path, learner: LearnerId, finished: Finished) -> Event:
    """Read back what a learner published; what does not verify fails the assignment."""
    failpoint("controller.before_verify")
    manifests: dict[str, Manifest] = {}
    try:
        for published in finished.checkpoints:
            key = published.checkpoint.key
            manifest = verify_directory(resolve_key(run_dir, key))
            if manifest.digest != published.checkpoint.digest:
                raise CheckpointError(f"{key} has digest {manifest.digest}")
            manifests[key] = manifest
    except ArenaError as error:
        failed = Failed(
            assignment_id=finished.assignment_id,
            attempt=finished.attempt,
            kind="storage" if isinstance(error, DiskRefused) else "error",
            reason=f"its checkpoint does not verify: {error}",
        )
        return AssignmentFailed(learner=learner, failed=failed)
    failpoint("controller.verified")
    return AssignmentFinished(learner=learner, finished=finished, manifests=manifests)


def link(run_dir: Path, ghosts: tuple[GhostRow, ...]) -> Event:
    """Make ghosts of checkpoints; says which could not be made, and of those which later may."""
    linked: list[PlayerId] = []
    refused: list[PlayerId] = []
    reason = ""
    for ghost in ghosts:
        try:
            link_ghost(run_dir, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
            linked.append(ghost.player)
        except CheckpointError as error:
            logger.error("ghost %s could not be linked: %s", ghost.player, error)
            if isinstance(error, DiskRefused):
                refused.append(ghost.player)
                reason = str(error)
    return GhostsLinked(players=tuple(linked), refused=tuple(refused), reason=reason)


def remove(run_dir: Path, keys: tuple[str, ...]) -> Event:
    """Remove checkpoints' directories, as far as it goes."""
    removed = []
    for key in keys:
        try:
            failpoint("controller.before_remove")
            remove_directory(run_dir, key)
            failpoint("controller.removed")
            removed.append(key)
        except (CheckpointError, OSError) as error:
            logger.error("checkpoint %s could not be removed: %s", key, error)
    return CheckpointsRemoved(keys=tuple(removed))
