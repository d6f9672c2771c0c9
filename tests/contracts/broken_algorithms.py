"""Algorithms with one mistake each, as users make them: DQN, changed in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from arena.core import ActorInput, AlgorithmOutput
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.networks.weights import load_tensors
from tests.assets.dqn import Dqn


class IgnoresTheMask(Dqn):
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        return super().act(replace(inputs, action_mask=None), generator=generator)


class KeepsGradients(Dqn):
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        network = self._network
        logits, value = network(network.normalize_observation(inputs.observation))
        policy = network.distribution(logits, inputs.action_mask)
        action = policy.sample(generator)
        return AlgorithmOutput(action=action, log_prob=policy.log_prob(action), value=value)


class DrawsGlobally(Dqn):
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        return super().act(inputs, generator=torch.default_generator)


class PlaysBetterThanItsWeights(Dqn):
    """It explores by another temperature than the network that plays in matches has."""

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        output = super().act(inputs, generator=generator)
        return replace(output, log_prob=output.log_prob * 0.5)


class SharesItsWeights(Dqn):
    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self._network.state_dict())


class KeepsItsReplay(Dqn):
    def load(self, weights: Any, optimizer_state: Any, *, learner_updates: int) -> None:
        replay = self._replay
        super().load(weights, optimizer_state, learner_updates=learner_updates)
        self._replay = replay


class ForgetsMoments(Dqn):
    def load(self, weights: Any, optimizer_state: Any, *, learner_updates: int) -> None:
        super().load(weights, None, learner_updates=learner_updates)


class CountsNothing(Dqn):
    @property
    def learner_updates(self) -> int:
        return 0


class TrainsTheHeadAlone(Dqn):
    def _step(self, replay: Any, *, generator: torch.Generator) -> float:
        self._network.trunk.requires_grad_(False)
        for parameter in self._network.trunk.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return super()._step(replay, generator=generator)


class AcceptsAnything(Dqn):
    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        own = self._network.state_dict()
        fitting = {
            name: tensor
            for name, tensor in weights.items()
            if name in own and own[name].shape == tensor.shape
        }
        super().load({**own, **fitting}, optimizer_state, learner_updates=learner_updates)


class IgnoresItsSeed(Dqn):
    def __init__(self, *arguments: Any, seed: int, **keywords: Any) -> None:
        super().__init__(*arguments, seed=0, **keywords)


class ReturnsATensor(Dqn):
    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        metrics = super().update(rollout, generator=generator)
        return {name: torch.tensor(value) for name, value in metrics.items()}  # type: ignore[misc]


class ShufflesByItself(Dqn):
    def _step(self, replay: Any, *, generator: torch.Generator) -> float:
        return super()._step(replay, generator=torch.Generator().manual_seed(torch.seed()))


class CentersItsValues(Dqn):
    @torch.inference_mode()
    def value(self, inputs: ActorInput) -> torch.Tensor:
        values = super().value(inputs)
        return values - values.mean()


class NamesNoHyperparameters(Dqn):
    Hyperparameters = None  # type: ignore[assignment]


class ForgetsItsCount(Dqn):
    def load(self, weights: Any, optimizer_state: Any, *, learner_updates: int) -> None:
        load_tensors(self._network.state_dict(), weights, what="weights")
        super().load(weights, optimizer_state, learner_updates=0)


class ValuesFromOneSide(Ppo):
    """PPO whose centralized critic gets zeros in the place of its input."""

    Hyperparameters = PpoHyperparameters
    Settings = PpoSettings

    def value(self, inputs: ActorInput) -> torch.Tensor:
        assert inputs.critic_input is not None
        return super().value(replace(inputs, critic_input=torch.zeros_like(inputs.critic_input)))


class KeepsItsCritic(Ppo):
    """PPO that never trains its centralized critic."""

    Hyperparameters = PpoHyperparameters
    Settings = PpoSettings

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        before = self.weights()
        metrics = dict(super().update(rollout, generator=generator))
        critic = {name: tensor for name, tensor in before.items() if name.startswith("critic.")}
        self._network.load_state_dict({**self._network.state_dict(), **critic})
        return metrics


CRITICS = {
    ValuesFromOneSide: "values must be of critic_input",
    KeepsItsCritic: "update must train every weight of the network",
}
"""Algorithms with a centralized critic, and the rule that each breaks."""

ALGORITHMS = {
    IgnoresTheMask: "act must choose legal actions",
    KeepsGradients: "log_prob must have no gradient",
    DrawsGlobally: "act must draw from generator alone",
    PlaysBetterThanItsWeights: "log_prob must be that of the network that plays in matches",
    SharesItsWeights: "weights and optimizer_state must be copies",
    KeepsItsReplay: "load must leave a policy as if it had just been made and loaded",
    ForgetsMoments: "load must give back the optimizer_state",
    CountsNothing: "learner_updates must count optimizer steps",
    TrainsTheHeadAlone: "update must train every weight of the network",
    AcceptsAnything: "load must raise CheckpointCorrupt for weights of another architecture",
    IgnoresItsSeed: "weights must be a function of the seed",
    ReturnsATensor: "update must return finite numbers by group/name",
    ShufflesByItself: "update must draw from generator alone",
    CentersItsValues: "the value of a row must not depend on the other rows",
    NamesNoHyperparameters: "it must be made as arena.learning.algorithms.AlgorithmClass",
    ForgetsItsCount: "load must take over learner_updates",
}
