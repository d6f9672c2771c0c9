"""Hyperparameters that a player's weights were last trained with.

Tests: `tests/tools/launch/test_initial_hyperparameters.py`, `tests/tools/export/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.checkpoints.manifest import Manifest
    from populations.views.questions.inspection import Inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWith:
    """Hyperparameters in use when some weights were made.

    Attributes:
        algorithm: Algorithm that they belong to; None: the export does not say.
        hyperparameters: Values by name, with names of choices in the places of their numbers.
        factors: Factors by which PBT had moved those that have a schedule.
    """

    algorithm: str | None = None
    hyperparameters: Mapping[str, bool | float | str]
    factors: Mapping[str, float] = field(default_factory=dict)


def trained_with(inspection: Inspection, manifest: Manifest) -> TrainedWith:
    """Return the hyperparameters of a checkpoint or a ghost of a run."""
    from arena.types import PolicyId, population_of, trainee_entrant
    from populations.choices import with_names

    policy = PolicyId(manifest.policy)
    population = inspection.run_file.config.populations[population_of(policy)]
    row = inspection.tables.generations.get(trainee_entrant(policy, generation=manifest.generation))
    return TrainedWith(
        algorithm=population.algorithm,
        hyperparameters=with_names(manifest.hyperparameters, population.search_space),
        # Rows of old generations go.
        factors={} if row is None else dict(row.factors),
    )
