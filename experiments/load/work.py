"""Work of the simulated learners: training whose checkpoints are really there."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from arena.wire.messages import Train, Trainee
from populations.config.run_file import RunFile
from populations.simulation.learner import SimulatedLearner
from populations.simulation.planted import Landscape, PlantedModel, Weights

OPTIMIZER_BYTES = b"the state of no optimizer"


class PublishingLearner(SimulatedLearner):
    """Simulated training whose checkpoints are really there."""

    def _publish(self, message: Train, trainee: Trainee, weights: Weights) -> Manifest:
        simulated = SimulatedLearner._publish(self, message, trainee, weights)
        words = f"{message.seed} {trainee.policy} {trainee.agent_steps}"
        files = {WEIGHTS: words.encode(), OPTIMIZER: OPTIMIZER_BYTES}
        manifest = structs.replace(simulated, files=file_records(files))
        publish(Path(self.setup.root), manifest=manifest, files=files)
        self.weights[manifest.weights_digest] = weights
        self.origins[manifest.digest] = manifest.weights_digest
        return manifest


def publishing_learner(run_file: RunFile, setup: LearnerSetup) -> PublishingLearner:
    """Make a learner that carries out what all learners of a process are given."""
    return PublishingLearner(
        setup=setup,
        model=PlantedModel(),
        # The costs do not depend on hyperparameters.
        landscapes=dict.fromkeys(run_file.config.populations, Landscape({}, 1.0)),
        agent_steps_per_s=10_000.0,
    )
