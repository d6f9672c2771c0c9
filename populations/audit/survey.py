"""Survey of a store: checkpoints and ghosts whose bytes verify and, of those that the journal does
not know, that fit the run.

Tests: `tests/faults/test_repair.py`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from arena.checkpoints.files import DIRECTORY_NAME, list_directories, resolve_key, verify_directory
from arena.checkpoints.manifest import (
    OPTIMIZER,
    Manifest,
    check_manifest,
    checkpoint_key,
    ghost_key,
)
from arena.checkpoints.shapes import Shapes, read_shapes
from arena.config import LearnerSetup
from arena.errors import CheckpointCorrupt, CheckpointMissing
from arena.types import population_of
from populations.records.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Content of a store.

    Attributes:
        checkpoints: Manifests of checkpoints whose every byte verifies, by key. Those that the
            journal does not know fit the run, and their tensors were loaded.
        ghosts: Manifests of ghosts, likewise.
        damaged: Reason why any other one cannot be used, by key.
    """

    checkpoints: Mapping[str, Manifest]
    ghosts: Mapping[str, Manifest]
    damaged: Mapping[str, str]


def survey(root: Path, tables: Tables, setup: LearnerSetup) -> Survey:
    """Read every checkpoint and ghost.

    Args:
        root: Store's root.
        tables: Rows of the journal.
        setup: Setup of the run's learners.

    Raises:
        CheckpointError: If the disk refuses.
    """
    damaged: dict[str, str] = {}
    checkpoints = _verified(root, "checkpoints", damaged)
    ghosts = _verified(root, "ghosts", damaged)
    known = tables.checkpoints.keys() | {ghost.key for ghost in tables.ghosts.values()}
    strangers = {
        key: manifest for key, manifest in (checkpoints | ghosts).items() if key not in known
    }
    shapes = _shapes_of(root, strangers, setup, damaged)
    expected = _expected_shapes(root, checkpoints, tables, shapes)
    for key, (population, found) in shapes.items():
        if found != expected[population]:
            damaged[key] = f"the tensors of its weights are not those of {population}"
    return Survey(
        checkpoints={key: one for key, one in checkpoints.items() if key not in damaged},
        ghosts={key: one for key, one in ghosts.items() if key not in damaged},
        damaged=damaged,
    )


def _shapes_of(
    root: Path, strangers: Mapping[str, Manifest], setup: LearnerSetup, damaged: dict[str, str]
) -> dict[str, tuple[str, Shapes]]:
    """Return population and shapes of weights of those that fit the run."""
    shapes = {}
    for key, manifest in strangers.items():
        population = population_of(manifest.policy)
        try:
            if population not in setup.populations:
                raise CheckpointCorrupt(f"{manifest.policy} is of no population of this run")
            check_manifest(
                manifest,
                environment_digest=setup.spec.digest,
                setup=setup.populations[population],
            )
            shapes[key] = population, read_shapes(resolve_key(root, key), manifest)
        except (CheckpointCorrupt, CheckpointMissing) as error:
            damaged[key] = str(error)
    return shapes


def _expected_shapes(
    root: Path,
    checkpoints: Mapping[str, Manifest],
    tables: Tables,
    shapes: Mapping[str, tuple[str, Shapes]],
) -> dict[str, Shapes]:
    """Return the shapes of each population's weights: those of a checkpoint that the journal knows,
    or else of most that it does not know.
    """
    expected: dict[str, Shapes] = {}
    for key in tables.checkpoints.keys() & checkpoints.keys():
        population = population_of(checkpoints[key].policy)
        if population not in expected:
            # One that is no file of tensors has done no harm so far.
            with contextlib.suppress(CheckpointCorrupt):
                expected[population] = read_shapes(resolve_key(root, key), checkpoints[key])
    counts = Counter(shapes.values())
    for (population, found), _ in counts.most_common():
        expected.setdefault(population, found)
    return expected


def _verified(
    root: Path, kind: Literal["checkpoints", "ghosts"], damaged: dict[str, str]
) -> dict[str, Manifest]:
    # A ghost plays but is never trained, so it has no optimizer's state.
    without = frozenset({OPTIMIZER} if kind == "ghosts" else ())
    name_of = ghost_key if kind == "ghosts" else checkpoint_key
    found = {}
    for key in list_directories(root, kind):
        # Temporary and set-aside directories stand beside the published ones.
        if not DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]):
            continue
        try:
            manifest = verify_directory(resolve_key(root, key), without=without)
        except (CheckpointCorrupt, CheckpointMissing) as error:
            damaged[key] = str(error)
            continue
        steps, digest = manifest.agent_steps, manifest.digest
        named = name_of(manifest.policy, agent_steps=steps, digest=digest)
        # `_record` makes keys from manifests: under this name no row would find the directory.
        if key == named:
            found[key] = manifest
        else:
            damaged[key] = f"its manifest is that of {named}"
    return found
