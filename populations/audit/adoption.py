"""Adoption of checkpoints and ghosts that a journal restored from a backup does not know.

Checkpoints and ghosts that were published after the backup are recorded again from their manifests,
and every policy continues from its newest checkpoint. Everything that only the lost journal had
stays lost: matches, metrics, causes of generations, and all other decisions since the backup.

A directory may have come from anywhere, so only what fits the run is adopted: its environment and
network must be equal, its tensors must load and have the right names and shapes, its counters must
rise from one checkpoint to the next, and its agent steps must be possible since the backup.

`survey` comes first. It reads all checkpoints and ghosts, finds those whose bytes verify, and
checks that the unknown ones fit the run.

Tests: `tests/faults/test_repair.py`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

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
from arena.types import (
    MAX_AGENT_STEPS,
    AssignmentId,
    Digest,
    Hyperparameters,
    PolicyId,
    Value,
    ghost_id,
    population_of,
    trainee_entrant,
)
from populations.choices import kinds
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, GenerationRow, GhostRow, Json, PolicyRow
from populations.records.tables import Tables
from populations.storage.store import named_by

ADOPTED = "checkpoint_adopted"
UNKNOWN_ASSIGNMENT = AssignmentId(0)
RESTORED = "the journal was restored from a backup"

Note = tuple[str, str, dict[str, Json]]
"""Kind, subject and data of an event."""


MAX_SPEED_UP = 10.0
"""Maximum training speed since the backup, as a multiple of the fastest policy's before."""

MAX_PER_S = 1e9
"""Bound of agent steps per second if no speed is known, above that of any learner."""

SLACK_S = 600.0
"""Seconds by which clocks of machines may differ."""

MAX_NEW_GENERATIONS = 1000
"""Maximum number of generations of a policy since a backup; it bounds the rows that are added."""


def adopt(tables: Tables, found: Survey, *, since_s: float) -> Adoption:
    """Decide which rows to add to a restored journal; a pure function.

    A policy takes counters, generation and hyperparameters from its newest manifest. Its other
    checkpoints are recorded too, as a fallback. Checkpoints that retention has removed since then
    are recorded as deleted. Open assignments fail.

    Args:
        tables: Rows of the backup; not changed.
        found: Checkpoints and ghosts on disk.
        since_s: Seconds since the backup.
    """
    # Bound the agent steps that a policy can have trained since the backup.
    speed = max((row.speed for row in tables.policies.values()), default=0.0)
    per_s = MAX_SPEED_UP * speed if speed > 0.0 else MAX_PER_S
    most = int(min(per_s * (max(since_s, 0.0) + SLACK_S), MAX_AGENT_STEPS))
    adoption = Adoption(tables, found, most)
    for policy in tables.policies.values():
        # Policies come first, as a ghost may belong to a checkpoint that is adopted here.
        adoption.take(policy)
    for ghost in tables.ghosts.values():
        if not ghost.linked and ghost.key in found.ghosts:
            # The ghost was linked after the backup.
            adoption.ghosts[ghost.key] = replace(ghost, linked=True)
    # This comes after all policies and ghosts, as their new rows decide what is needed.
    adoption.forget_removed()
    for assignment in tables.assignments.values():
        # The assignment was decided before the backup, and may have been carried out since.
        adoption.others.append(replace(assignment, status="failed", reason=RESTORED))
        data: dict[str, Json] = {"failure": "repair", "reason": RESTORED}
        adoption.notes.append(("assignment_failed", str(assignment.assignment_id), data))
    return adoption


@dataclass(slots=True)
class Adoption:
    """Changes to a restored journal.

    Attributes:
        tables: Rows of the backup; not changed.
        found: Checkpoints and ghosts on disk.
        most_agent_steps: Maximum agent steps that a policy can have trained since the backup.
        refused: Reason why a checkpoint was not adopted although it fits the run, by key.
        checkpoints: Rows of checkpoints to commit, by key.
        policies: Rows of policies to commit, by policy.
        ghosts: Rows of ghosts to commit, by key.
        others: Further rows to commit, without `RunRow` and events.
        notes: Kind, subject and data of events to commit.
        num_new: Number of new checkpoints by population.
    """

    tables: Tables
    found: Survey
    most_agent_steps: int
    refused: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointRow] = field(default_factory=dict)
    policies: dict[PolicyId, PolicyRow] = field(default_factory=dict)
    ghosts: dict[str, GhostRow] = field(default_factory=dict)
    others: list[Row] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    num_new: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> list[Row]:
        """Rows to commit, without `RunRow` and events."""
        checkpoints, policies, ghosts = self.checkpoints, self.policies, self.ghosts
        return [*checkpoints.values(), *policies.values(), *ghosts.values(), *self.others]

    @property
    def agent_steps(self) -> int:
        """Agent steps that all policies have trained since the backup."""
        before = self.tables.policies
        return sum(
            row.agent_steps - before[row.policy].agent_steps for row in self.policies.values()
        )

    @property
    def num_finished(self) -> int:
        """Lower bound of the assignments that finished after the backup: an assignment makes at
        most one checkpoint per population.
        """
        return max(self.num_new.values(), default=0)

    def take(self, policy: PolicyRow) -> None:
        """Move a policy to its newest checkpoint, and record its new checkpoints and ghosts."""
        new = self._believable(policy)
        for _, manifest in new:
            # The oldest comes first, because `_parent` looks for the row of a checkpoint's parent.
            self._record(policy, manifest, state="present")
        after = policy if not new else self._advance(policy, *new[-1], num_new=len(new))
        for key, manifest in self.found.ghosts.items():
            if manifest.policy == policy.policy and self._is_new_ghost(after, manifest):
                self._record_ghost(after, key, manifest)
                after = replace(after, ghost_at=max(after.ghost_at, manifest.agent_steps))
        if after != policy:
            self.policies[policy.policy] = after

    def _believable(self, policy: PolicyRow) -> list[tuple[str, Manifest]]:
        """Return new checkpoints of a policy with possible counters, oldest first."""
        before = (policy.agent_steps, policy.learner_updates)
        found = []
        for key, manifest in sorted(self._newer(policy), key=lambda item: _age(item[1])):
            counters = (manifest.agent_steps, manifest.learner_updates)
            gained = manifest.agent_steps - policy.agent_steps
            if gained > self.most_agent_steps:
                self.refused[key] = (
                    f"{gained:,} agent steps since the backup, {self.most_agent_steps:,} at most "
                    "can have been trained"
                )
            elif manifest.generation - policy.generation > MAX_NEW_GENERATIONS:
                self.refused[key] = (
                    f"generation {manifest.generation}, that of the backup is {policy.generation}; "
                    f"at most {MAX_NEW_GENERATIONS} can have come since"
                )
            # Counters never decrease, not even if PBT has replaced the weights.
            elif any(new < old for new, old in zip(counters, before, strict=True)):
                self.refused[key] = "its counters are below those of an older one"
            else:
                before = counters
                found.append((key, manifest))
        return found

    def _newer(self, policy: PolicyRow) -> Iterator[tuple[str, Manifest]]:
        """Yield the checkpoints that a policy has published since the backup."""
        for key, manifest in self.found.checkpoints.items():
            counters = (manifest.generation, manifest.agent_steps, manifest.learner_updates)
            before = (policy.generation, policy.agent_steps, policy.learner_updates)
            if (
                manifest.policy == policy.policy
                and key not in self.tables.checkpoints
                # Counters never decrease, so a checkpoint with a lower one is older than the
                # backup.
                and all(new >= old for new, old in zip(counters, before, strict=True))
                # The first checkpoint is made at 0 steps, so a policy without one has equal
                # counters.
                and (counters > before or policy.checkpoint is None)
                # Assignments require exactly the policy's hyperparameters, with their types.
                and kinds(manifest.hyperparameters) == kinds(policy.hyperparameters)
            ):
                yield key, manifest

    def _advance(
        self, policy: PolicyRow, key: str, manifest: Manifest, *, num_new: int
    ) -> PolicyRow:
        after = replace(
            policy,
            agent_steps=manifest.agent_steps,
            learner_updates=manifest.learner_updates,
            checkpoint=key,
            pending={},
        )
        if manifest.generation > policy.generation:
            after = replace(
                after,
                # A new generation ends a quarantine that was in force at the backup.
                state="active",
                generation=manifest.generation,
                # The true count is lost; like `_generations`, use that of the backup.
                generation_at=policy.agent_steps,
                ready_at=manifest.agent_steps,
                hyperparameters=_like(policy.hyperparameters, manifest.hyperparameters),
                parent=policy.parent if manifest.donor is None else PolicyId(manifest.donor),
            )
            self.others += _generations(policy, after, self.tables)
        data: dict[str, Json] = {
            "checkpoint": key,
            "agent_steps_before": policy.agent_steps,
            "agent_steps": after.agent_steps,
            "generation_before": policy.generation,
            "generation": after.generation,
            "num_checkpoints": num_new,
        }
        self.notes.append((ADOPTED, policy.policy, data))
        return after

    def _is_new_ghost(self, policy: PolicyRow, manifest: Manifest) -> bool:
        player = ghost_id(policy.policy, agent_steps=manifest.agent_steps)
        known = {ghost.player for ghost in self.ghosts.values()} | self.tables.ghosts.keys()
        return (
            # A ghost's id is its policy and step, so a second ghost would replace the first.
            player not in known
            # A ghost above the policy's counters has no usable checkpoint: it is lost or damaged.
            and manifest.agent_steps <= policy.agent_steps
            and manifest.generation <= policy.generation
        )

    def _record_ghost(self, policy: PolicyRow, key: str, manifest: Manifest) -> None:
        # Retention may have removed the source checkpoint, but lineage and ratings need its row.
        source = self._record(policy, manifest, state="deleted")
        # New ghosts start with the highest quality (`populations.matchmaking.quality`).
        qualities = [
            ghost.quality
            for ghost in self.tables.ghosts.values()
            if ghost.population == policy.population
        ]
        ghost = GhostRow(
            player=ghost_id(policy.policy, agent_steps=manifest.agent_steps),
            policy=policy.policy,
            population=policy.population,
            agent_steps=manifest.agent_steps,
            generation=manifest.generation,
            weights_digest=manifest.weights_digest,
            key=key,
            checkpoint=source.key,
            linked=True,
            role=policy.role,
            quality=max(qualities, default=0.0),
        )
        self.ghosts[key] = ghost
        self.notes.append(("ghost_adopted", ghost.player, {"key": key}))

    def _record(
        self, policy: PolicyRow, manifest: Manifest, *, state: Literal["present", "deleted"]
    ) -> CheckpointRow:
        """Return the row of a checkpoint; if there is none, add one made from its manifest."""
        key = checkpoint_key(
            manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest
        )
        known = self.checkpoints.get(key) or self.tables.checkpoints.get(key)
        if known is not None:
            return known
        self.num_new[policy.population] += 1
        row = CheckpointRow(
            key=key,
            digest=manifest.digest,
            weights_digest=manifest.weights_digest,
            policy=policy.policy,
            generation=manifest.generation,
            agent_steps=manifest.agent_steps,
            learner_updates=manifest.learner_updates,
            parent=self._parent(policy, manifest),
            assignment_id=UNKNOWN_ASSIGNMENT,
            state=state,
        )
        self.checkpoints[key] = row
        return row

    def _parent(self, policy: PolicyRow, manifest: Manifest) -> Digest | None:
        """Return the digest of the weights that a checkpoint was trained from, or of their newest
        known ancestor; None if no ancestor is known.
        """
        if manifest.parent is None:
            return None
        rows = (*self.checkpoints.values(), *self.tables.checkpoints.values())
        for row in rows:
            # A manifest has the digest of its parent's checkpoint, but a row that of the weights.
            if row.digest == manifest.parent:
                return row.weights_digest
        # Within a generation a policy continues from its own weights, so those of the backup are an
        # ancestor.
        if manifest.generation != policy.generation or policy.checkpoint is None:
            return None
        current = self.tables.checkpoints.get(policy.checkpoint)
        return None if current is None else current.weights_digest

    def forget_removed(self) -> None:
        """Record missing checkpoints as deleted, unless they are needed.

        A needed checkpoint that is missing is damage, which `populations.storage.recovery` handles.
        """
        needed: set[str] = set()
        for policy in (self.tables.policies | self.policies).values():
            needed.update(named_by(policy))
        # Use the changed rows, as a ghost that is linked by now does not need its source.
        by_key = {ghost.key: ghost for ghost in self.tables.ghosts.values()} | self.ghosts
        for ghost in by_key.values():
            needed.update(named_by(ghost))
        for row in self.tables.checkpoints.values():
            is_gone = row.key not in self.found.checkpoints.keys() | self.found.damaged.keys()
            if row.state == "present" and is_gone and row.key not in needed:
                self.checkpoints[row.key] = replace(row, state="deleted")


def _age(manifest: Manifest) -> tuple[int, int, int]:
    return (manifest.generation, manifest.agent_steps, manifest.learner_updates)


def _like(before: Hyperparameters, after: Hyperparameters) -> dict[str, Value]:
    """Return hyperparameters with the integers restored: a manifest may have 4.0 instead of 4."""
    return {
        name: int(value) if type(before[name]) is int else value for name, value in after.items()
    }


def _generations(before: PolicyRow, after: PolicyRow, tables: Tables) -> Iterator[GenerationRow]:
    """Yield rows of generations that began after the backup; only their number is known."""
    last = tables.generations.get(before.trainee)
    if last is None:
        return
    # All but the last generation begin and end at the backup's count, so that there are no gaps.
    yield replace(last, agent_steps_end=before.agent_steps)
    for generation in range(before.generation + 1, after.generation + 1):
        is_last = generation == after.generation
        yield GenerationRow(
            entrant=trainee_entrant(after.policy, generation=generation),
            policy=after.policy,
            population=after.population,
            generation=generation,
            cause="repair",
            parent=None,
            hyperparameters=dict(after.hyperparameters),
            # A manifest has no factors, so those of the backup are used.
            factors=dict(after.factors),
            agent_steps_begin=before.agent_steps,
            agent_steps_end=None if is_last else before.agent_steps,
            line_begin=generation,
            copies=last.copies,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Checkpoints and ghosts on the disk.

    Attributes:
        checkpoints: Manifests of checkpoints whose every byte verifies, by key. Checkpoints that
            the journal does not know also fit the run, and their tensors were loaded.
        ghosts: Manifests of ghosts, by the same rules.
        damaged: Reason why any other directory cannot be used, by key.
    """

    checkpoints: Mapping[str, Manifest]
    ghosts: Mapping[str, Manifest]
    damaged: Mapping[str, str]


def survey(root: Path, tables: Tables, setup: LearnerSetup) -> Survey:
    """Read and check every checkpoint and ghost on disk.

    Args:
        root: Directory of the run.
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
    """Return population and shapes of weights of directories that fit; add others to `damaged`."""
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
    """Return the shapes that each population's weights must have: those of a checkpoint in the
    journal or, without one, the most frequent shapes of unknown checkpoints.
    """
    expected: dict[str, Shapes] = {}
    for key in tables.checkpoints.keys() & checkpoints.keys():
        population = population_of(checkpoints[key].policy)
        if population not in expected:
            # A known checkpoint without readable tensors is no reason to stop; try the next.
            with contextlib.suppress(CheckpointCorrupt):
                expected[population] = read_shapes(resolve_key(root, key), checkpoints[key])
    counts = Counter(shapes.values())
    for (population, found), _ in counts.most_common():
        expected.setdefault(population, found)
    return expected


def _verified(
    root: Path, kind: Literal["checkpoints", "ghosts"], damaged: dict[str, str]
) -> dict[str, Manifest]:
    # A ghost plays but is never trained, so its directory has no optimizer state.
    without = frozenset({OPTIMIZER} if kind == "ghosts" else ())
    name_of = ghost_key if kind == "ghosts" else checkpoint_key
    found = {}
    for key in list_directories(root, kind):
        # Skip temporary directories and those set aside, which are in the same folder.
        if not DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]):
            continue
        try:
            manifest = verify_directory(resolve_key(root, key), without=without)
        except (CheckpointCorrupt, CheckpointMissing) as error:
            damaged[key] = str(error)
            continue
        steps, digest = manifest.agent_steps, manifest.digest
        named = name_of(manifest.policy, agent_steps=steps, digest=digest)
        # `_record` derives keys from manifests, so a directory with another name would not be found
        # by its row.
        if key == named:
            found[key] = manifest
        else:
            damaged[key] = f"its manifest is that of {named}"
    return found
