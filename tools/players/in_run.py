"""Champions, policies, checkpoints and ghosts of a run, by name.

Tests: `tests/tools/players/test_in_run.py`, `tests/tools/evaluate/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arena.types import Hyperparameters

if TYPE_CHECKING:
    from arena.checkpoints.manifest import Manifest
    from arena.types import WeightsRef
    from populations.league.names import Subject
    from populations.records.rows import CheckpointRow, GhostRow
    from populations.records.tables import Tables
    from populations.views.questions.inspection import Inspection


def champions(inspection: Inspection) -> dict[str, tuple[str, WeightsRef]]:
    """Return the id and the weights of the champion of every population of a run that has one.

    Raises:
        ConfigError: If no player is rated yet.
    """
    from arena.errors import ConfigError
    from populations.league.names import listed
    from populations.league.standings import champion

    found: dict[str, tuple[str, WeightsRef]] = {}
    for population, lines in inspection.standings().items():
        best = champion(lines)
        # The champion's evaluated weights may be older than its latest ones.
        if best is not None and best.reference is not None:
            found[population] = best.player, best.reference
    if not found:
        raise ConfigError(
            f"{inspection.run_dir} has no champion: no player is rated yet; name a policy, "
            f"{listed(inspection.tables.policies)}"
        )
    return found


def find_in_run(inspection: Inspection, player: str) -> tuple[str, WeightsRef]:
    """Return the full name and the weights of a policy (its latest checkpoint), a kept checkpoint
    or a ghost.

    Raises:
        ConfigError: If the run has no such player, or it has no checkpoint yet.
    """
    from arena.errors import ConfigError
    from populations.league.names import find_player

    tables = inspection.tables
    found = find_player(player, tables, kept=True, where=inspection.run_dir)
    if found.agent_steps is not None:
        row = kept_ghost(tables, found) or kept_checkpoint(tables, found)
        assert row is not None, "a kept player has a ghost or a checkpoint"
        return found.player, row.weights
    row_of_policy = tables.policies[found.policy]
    if row_of_policy.checkpoint is None:
        raise ConfigError(f"{found.player} of {inspection.run_dir} has no checkpoint yet")
    # A policy stands for its latest weights, evaluated or not.
    return found.player, tables.checkpoints[row_of_policy.checkpoint].weights


def find_directory(inspection: Inspection, key: str) -> tuple[str, WeightsRef]:
    """Find a kept checkpoint or a ghost by its directory, relative to the run's.

    Raises:
        ConfigError: If the run has recorded none there.
    """
    from arena.errors import ConfigError
    from arena.types import ghost_id

    for row in kept_at(inspection.tables, key):
        return ghost_id(row.policy, agent_steps=row.agent_steps), row.weights
    raise ConfigError(f"{inspection.run_dir} has recorded no checkpoint or ghost at {key}")


def kept_at(tables: Tables, key: str | None) -> list[CheckpointRow | GhostRow]:
    """Return what is kept in a directory of a run: the checkpoint, then the ghosts."""
    checkpoint = None if key is None else tables.checkpoints.get(key)
    ghosts = [row for row in tables.ghosts.values() if row.key == key and row.is_present]
    if checkpoint is None or checkpoint.state != "present":
        return [*ghosts]
    return [checkpoint, *ghosts]


def kept_ghost(tables: Tables, subject: Subject) -> GhostRow | None:
    """Return the ghost of a policy at a number of agent steps, if it is kept."""
    from arena.types import PlayerId

    ghost = tables.ghosts.get(PlayerId(subject.player))
    if ghost is None or not ghost.is_present:
        return None
    return ghost if subject.weights in (None, ghost.weights_digest) else None


def kept_checkpoint(tables: Tables, subject: Subject) -> CheckpointRow | None:
    """Return the newest kept checkpoint of a policy at a number of agent steps."""
    from populations.storage.store import newest_last

    kept = [
        row
        for row in tables.checkpoints.values()
        if row.policy == subject.policy
        and row.agent_steps == subject.agent_steps
        and subject.weights in (None, row.weights_digest)
        and row.state == "present"
    ]
    return max(kept, key=newest_last, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWith:
    """Hyperparameters in use when some weights were made.

    Attributes:
        algorithm: Algorithm that they belong to; None: the export does not say.
        hyperparameters: Values by name.
        factors: Factors by which PBT had moved those that have a schedule.
    """

    algorithm: str | None = None
    hyperparameters: Hyperparameters
    factors: Mapping[str, float] = field(default_factory=dict)


def trained_with(inspection: Inspection, manifest: Manifest) -> TrainedWith:
    """Return the hyperparameters of a checkpoint or a ghost of a run."""
    from arena.types import PolicyId, population_of, trainee_entrant

    policy = PolicyId(manifest.policy)
    population = inspection.run_file.config.populations[population_of(policy)]
    row = inspection.tables.generations.get(trainee_entrant(policy, generation=manifest.generation))
    return TrainedWith(
        algorithm=population.algorithm,
        hyperparameters=manifest.hyperparameters,
        # The row of an old generation may have been removed.
        factors={} if row is None else dict(row.factors),
    )
