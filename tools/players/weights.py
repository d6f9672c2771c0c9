"""Frozen weights of policies and mixtures, and the actors that play by them.

Tests: `tests/tools/players/test_exploitability.py`, `tests/tools/export/test_mixture.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from arena.checkpoints.manifest import Manifest
    from arena.config import NetworkConfig
    from arena.core import Actor
    from arena.matches.tournament import ActorMixture
    from arena.networks.frozen import FrozenPolicy
    from arena.types import Digest, WeightsRef
    from populations.config.trust import Word
    from populations.views.questions.inspection import Inspection

    from .game import Game
    from .in_run import TrainedWith


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeights:
    """A policy that is frozen: all that playing needs.

    Attributes:
        player: Its id in the run that it comes from.
        agents: Agents that it can play.
        network: The architecture.
        tensors: float32, as a checkpoint has them.
        digest: Digest of the weights in that run's league.
        agent_steps: Agent steps that it was trained for.
        export: The directory it was exported to, if it comes from one.
        graph: Graph in that directory.
        temperature: Temperature at which it samples, always; ``tensors`` have it in them. None:
            it plays as the caller asks.
        word: The user's word for the code of the file that the architecture is from.
        trained_with: Hyperparameters of its last training; None: they were not looked up.
    """

    player: str
    agents: tuple[str, ...]
    network: NetworkConfig
    tensors: Mapping[str, torch.Tensor]
    digest: Digest
    agent_steps: int
    word: Word
    export: Path | None = None
    graph: str = "policy.onnx"
    temperature: float | None = None
    trained_with: TrainedWith | None = None

    @property
    def is_told_who_decides(self) -> bool:
        """Return whether its observations end with the agent."""
        return self.network.agent_id

    def make_actor(self, game: Game, *, greedy: bool) -> Actor:
        """Make an actor on the CPU; an export plays by its graph."""
        from arena.export.actor import ExportedActor

        greedy = greedy and self.temperature is None
        if self.export is None:
            return self.make_policy(game, greedy=greedy)
        at = self.temperature or 1.0
        # An export plays by its graph, because its weights alone may play differently.
        return ExportedActor(self.export, greedy=greedy, graph=self.graph, temperature=at)

    def at_temperature(self, temperature: float) -> PolicyWeights:
        """Return the policy that samples by the probabilities of this one to the power of 1 /
        temperature, which no other temperature has changed.
        """
        from arena.checkpoints.files import sha256_bytes
        from arena.checkpoints.tensors import serialize
        from arena.export.actor import tempered

        # At temperature 1 the weights are unchanged and keep the digest that the league knows.
        if temperature == 1.0:
            return replace(self, temperature=temperature)
        tensors = tempered(self.tensors, self.network, temperature=temperature)
        digest = sha256_bytes(serialize(tensors))
        return replace(self, temperature=temperature, tensors=tensors, digest=digest)

    def make_policy(self, game: Game, *, greedy: bool = False) -> FrozenPolicy:
        """Make the policy from its weights on the CPU, of an export, too."""
        import torch

        from arena.networks.frozen import FrozenPolicy
        from arena.resolve import put_first_on_path

        # The encoder may be user code, which needs trust.
        self.word.check(self.network.encoder)
        put_first_on_path(self.word.launch_directory)
        observation, action = game.layouts(self.agents, network=self.network)
        return FrozenPolicy.from_weights(
            self.network,
            self.tensors,
            observation=observation,
            action=action,
            # The device is that of the environments (`Game.make_env`).
            device=torch.device("cpu"),
            greedy=greedy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureWeights:
    """Policies of which one is drawn for each match.

    Attributes:
        player: Name of the mixture.
        agents: Agents that it can play.
        members: The policies.
        probabilities: Probability of each member.
    """

    player: str
    agents: tuple[str, ...]
    members: tuple[PolicyWeights, ...]
    probabilities: tuple[float, ...]

    @property
    def is_told_who_decides(self) -> bool:
        """Return whether its members, which have one architecture, are told so."""
        # Members have the same agents and environment (`resolve._exported_mixture`).
        return self.members[0].is_told_who_decides

    def at_temperature(self, temperature: float) -> MixtureWeights:
        """Return the mixture of its members at a temperature."""
        members = tuple(member.at_temperature(temperature) for member in self.members)
        return replace(self, members=members)

    def make_actor(self, game: Game, *, greedy: bool) -> ActorMixture:
        """Make an actor on the CPU for each member."""
        from arena.matches.tournament import ActorMixture

        return ActorMixture(
            actors=tuple(member.make_actor(game, greedy=greedy) for member in self.members),
            probabilities=self.probabilities,
        )


def load_policy(
    inspection: Inspection, player: str, reference: WeightsRef, *, word: Word
) -> tuple[Manifest, PolicyWeights]:
    """Load a player of a run.

    Args:
        inspection: The run.
        player: Its full name there.
        reference: Its weights.
        word: The user's word for the code of the run.

    Raises:
        CheckpointError: If its weights are missing, damaged, or of another architecture than the
            population's.
    """
    from arena.checkpoints.manifest import check_manifest
    from arena.checkpoints.tensors import load_weights
    from arena.errors import CheckpointCorrupt
    from arena.types import population_of
    from populations.config.run_file import learner_setup

    manifest, tensors = load_weights(inspection.run_dir, reference)
    setup = learner_setup(inspection.run_file, root=inspection.run_dir)
    population = setup.populations[population_of(player)]
    # The names come from run.yaml, not from the checkpoint, which repeats them. Whether two players
    # have the same environment is checked when they play each other.
    check_manifest(manifest, environment_digest=manifest.environment_digest, setup=population)
    if population_of(manifest.policy) != population_of(player):
        raise CheckpointCorrupt(f"{reference.key}: its policy must be one of {player}'s population")
    return manifest, PolicyWeights(
        player=player,
        agents=population.agents,
        network=population.network,
        word=word,
        tensors=tensors,
        digest=reference.digest,
        agent_steps=manifest.agent_steps,
    )
