"""Tasks on directories of checkpoints and ghosts, each of which returns an event as its answer."""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec.structs import replace

from arena.checkpoints.files import read_manifest, resolve_key, verify_directory
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.checkpoints.publish import remove_directory
from arena.errors import (
    ArenaError,
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
    DiskRefused,
)
from arena.failpoints import failpoint
from arena.types import MAX_CHARACTERS, CheckpointRef, LearnerId, WeightsRef
from arena.wire.messages import Evaluate, Failed, Finished, Train, named_references
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    Event,
    GhostsLinked,
)
from populations.records.rows import GhostRow
from populations.storage.store import link_ghosts

logger = logging.getLogger(__name__)

MAX_GROWTH = 2
"""Largest accepted growth of weights in an assignment, as a factor. It protects the memory of every
learner that loads them, for a trainee or an opponent."""

HARMLESS_BYTES = 1 << 20
"""Size of weights that is always accepted."""


def verify(
    run_dir: Path, learner: LearnerId, finished: Finished, message: Train | Evaluate
) -> Event:
    """Read back and verify what a learner published; if it is not valid, the assignment fails.

    Args:
        run_dir: Root of the store.
        learner: Learner that finished.
        finished: Message of the learner.
        message: Its assignment.
    """
    failpoint("controller.before_verify")
    trainees = message.trainees if isinstance(message, Train) else ()
    given = {trainee.policy: trainee.checkpoint for trainee in trainees}
    manifests: dict[str, Manifest] = {}
    try:
        for published in finished.checkpoints:
            key = published.checkpoint.key
            directory = resolve_key(run_dir, key)
            # The size is checked first, because to read a huge file would take minutes.
            _check_size(run_dir, directory, given=given.get(published.policy))
            manifest = verify_directory(directory)
            # An intact directory may still have another checkpoint than the message names.
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


def _check_size(run_dir: Path, directory: Path, *, given: CheckpointRef | None) -> None:
    """Compare the size of weights with that of the weights they were trained from.

    Raises:
        CheckpointError: If they are larger than `MAX_GROWTH` times those and `HARMLESS_BYTES`.
    """
    if given is None:
        return
    try:
        before = read_manifest(resolve_key(run_dir, given.key)).files[WEIGHTS].size_bytes
    except CheckpointError:
        # Damage of the source directory is not this learner's fault, and its next use will find it.
        return
    size = read_manifest(directory).files[WEIGHTS].size_bytes
    if size > max(MAX_GROWTH * before, HARMLESS_BYTES):
        raise CheckpointError(
            f"{directory}: weights of {size} bytes, trained from weights of {before}; "
            f"at most {MAX_GROWTH} times as many are believed"
        )


def read_back(
    run_dir: Path, learner: LearnerId, failed: Failed, message: Train | Evaluate
) -> Event:
    """Read the checkpoint that a learner reports as corrupt, and return the fault in the event.

    Args:
        run_dir: Root of the store.
        learner: Learner that failed.
        failed: Message of the learner.
        message: Its assignment. A directory that this does not name is not read.
    """
    # A learner's message must not make the controller read any directory outside its assignment.
    expected = [ref for ref in named_references(message) if ref.key == failed.key]
    damage = None
    try:
        for ref in expected:
            _check_reference(run_dir, ref)
    except (CheckpointCorrupt, CheckpointMissing) as error:
        # Only these two errors mean damage of the checkpoint; all others are caught below.
        damage = str(error)
    except CheckpointError as error:
        # The controller or its disk is at fault, so this says nothing about the checkpoint.
        logger.error("%s, which %s calls corrupt, cannot be read: %s", failed.key, learner, error)
    if damage is None:
        reason = f"it says that {failed.key} is corrupt ({failed.reason}), but the controller " + (
            "finds nothing wrong with it" if expected else "never named that to it"
        )
        # Texts of messages have a limited length.
        failed = replace(failed, reason=reason[:MAX_CHARACTERS])
    return AssignmentFailed(learner=learner, failed=failed, damage=damage)


def _check_reference(run_dir: Path, ref: CheckpointRef | WeightsRef) -> None:
    directory = resolve_key(run_dir, ref.key)
    is_whole = isinstance(ref, CheckpointRef)
    # Weights to play with may be of a ghost, which has no optimizer.
    manifest = verify_directory(directory, without=frozenset(() if is_whole else (OPTIMIZER,)))
    found = manifest.digest if is_whole else manifest.weights_digest
    if found != ref.digest:
        raise CheckpointCorrupt(f"{directory}: digest {found} instead of {ref.digest}")
    if is_whole and OPTIMIZER not in manifest.files:
        raise CheckpointCorrupt(f"{directory}: no optimizer")


def link(run_dir: Path, ghosts: tuple[GhostRow, ...]) -> Event:
    """Make directories of ghosts; the event names those made, and those that the disk refused."""
    linked, refused, reason = link_ghosts(run_dir, ghosts)
    return GhostsLinked(players=tuple(linked), refused=tuple(refused), reason=reason)


def remove(run_dir: Path, keys: tuple[str, ...]) -> Event:
    """Remove directories of checkpoints; the event names only those that could be removed."""
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
