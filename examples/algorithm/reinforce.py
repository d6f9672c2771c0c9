"""REINFORCE with a baseline beside PPO, in one league (Williams, Machine Learning, 1992)."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch.nn import functional

from arena.config import Model
from arena.core import ActorInput, Algorithm, AlgorithmOutput
from arena.experience import Rollout
from arena.learning.optimizer import NamedAdam
from arena.networks.actor_critic import make_actor_critic
from arena.networks.weights import copy_tensors, load_tensors


class ReinforceHyperparameters(Model):
    """Numbers that PBT may change."""

    learning_rate: float = Field(3e-3, gt=0.0)
    gamma: float = Field(0.99, ge=0.0, le=1.0)
    rollout_length: int = Field(16, ge=1)


class Reinforce(Algorithm):
    """One step along the gradient of log-probability times advantage for each rollout."""

    Hyperparameters = ReinforceHyperparameters
    rollout_length, gamma, learner_updates = 16, 0.99, 0
    gae_lambda = 1.0  # advantages are those of whole returns

    def __init__(
        self,
        network: Any,
        *,
        hyperparameters: ReinforceHyperparameters,
        device: torch.device,
        observation: Any,
        action: Any,
        seed: int,
        **_: object,
    ) -> None:
        self._numbers = hyperparameters
        self.rollout_length, self.gamma = hyperparameters.rollout_length, hyperparameters.gamma
        # The league plays matches with this network too, so it must be the population's own.
        made = make_actor_critic(network, observation=observation, action=action, seed=seed)
        self._network = made.to(device)
        self._optimizer = NamedAdam(made, learning_rate=hyperparameters.learning_rate, beta1=0.9)

    @torch.inference_mode()
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        """Sample one action per row."""
        policy, value = self._policy(inputs.observation, inputs.action_mask)
        action = policy.sample(generator)
        return AlgorithmOutput(action=action, log_prob=policy.log_prob(action), value=value)

    @torch.inference_mode()
    def value(self, inputs: ActorInput) -> torch.Tensor:
        """Return the expected return of each row."""
        return self._network.value(inputs.observation)

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        """Take one step of the optimizer."""
        policy, value = self._policy(rollout.observation, rollout.action_mask)
        advantage = rollout.advantage - rollout.advantage.mean()
        loss = -(policy.log_prob(rollout.action) * advantage).mean()
        loss = loss + 0.5 * functional.mse_loss(value, rollout.return_)
        self._optimizer.compute_gradients(loss, max_norm=1.0)
        self._optimizer.step()
        self.learner_updates += 1
        return {"loss/total": float(loss.detach())}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return all that playing needs."""
        return copy_tensors(self._network.state_dict())

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Return all else that learning needs after a restart."""
        return copy_tensors(self._optimizer.tensors())

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        """Take over a checkpoint."""
        load_tensors(self._network.state_dict(), weights, what="weights")
        self._optimizer.reset()
        if optimizer_state is not None:
            load_tensors(self._optimizer.tensors(), optimizer_state, what="optimizer")
        self._optimizer.apply(learning_rate=self._numbers.learning_rate, beta1=0.9)
        self.learner_updates = learner_updates

    def _policy(self, observation: torch.Tensor, mask: torch.Tensor | None) -> Any:
        parameters, value = self._network(self._network.normalize_observation(observation))
        return self._network.distribution(parameters, mask), value
