"""A user's own algorithm, as short as it can be: DQN beside PPO in one league.

Mnih et al., "Human-level control through deep reinforcement learning" (Nature 2015); the larger
value is chosen by one network and told by another as in van Hasselt, Guez and Silver, "Deep
Reinforcement Learning with Double Q-learning" (AAAI 2016). What plays is the population's network:
its logits are Q / temperature, so that a sampled action is Boltzmann exploration and the likeliest
one the greedy action. The value head learns the same targets, for what follows a rollout's last
decisions.

A checkpoint holds the network, the target network and Adam's state. The replay does not survive
one: it fills anew in each assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from pydantic import Field
from torch.nn import functional

from arena.config import Model, NetworkConfig
from arena.core import ActorInput, Algorithm, AlgorithmOutput
from arena.errors import ConfigError, NonFiniteError
from arena.experience import Rollout
from arena.learning.optimizer import NamedAdam
from arena.learning.ppo import AveragedNetwork, with_prefix, without_prefix
from arena.networks.actor_critic import make_actor_critic
from arena.networks.distributions import mask_logits
from arena.networks.weights import copy_tensors, load_tensors
from arena.spaces import ActionLayout, ObservationLayout

TARGET = "target."


class DqnSettings(Model):
    """What PBT may not change."""

    capacity: int = Field(20_000, ge=1)


class DqnHyperparameters(Model):
    """What PBT may change."""

    learning_rate: float = Field(2e-3, gt=0.0)
    gamma: float = Field(0.95, ge=0.0, le=1.0)
    temperature: float = Field(0.1, gt=0.0)
    target_rate: float = Field(0.05, ge=0.0, le=1.0)
    rollout_length: int = Field(8, ge=1)
    num_batches: int = Field(8, ge=1)
    batch_size: int = Field(256, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Decisions and their successors. R rows."""

    observation: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    has_next: torch.Tensor
    next_observation: torch.Tensor
    next_mask: torch.Tensor
    next_value: torch.Tensor

    @classmethod
    def of(cls, rollout: Rollout) -> Replay:
        """The decisions of one rollout."""
        followed, mask = rollout.transitions, rollout.action_mask
        if followed is None or mask is None:
            raise ValueError("DQN needs transitions and action masks")
        after = followed.successor.clamp(min=0)
        return cls(
            observation=rollout.observation,
            action=rollout.action,
            reward=followed.reward,
            has_next=followed.successor >= 0,
            next_observation=rollout.observation[after],
            next_mask=mask[after],
            next_value=followed.next_value,
        )

    def rows(self, index: torch.Tensor | slice) -> Replay:
        """Some of them."""
        return Replay(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def followed_by(self, other: Replay) -> Replay:
        """Both, the newer last."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Replay(**{name: torch.cat(pair) for name, pair in pairs.items()})


class Dqn(Algorithm):
    """An `arena.core.Algorithm` without recurrent state and centralized critic."""

    Hyperparameters = DqnHyperparameters
    Settings = DqnSettings
    gae_lambda = 0.0
    needs_transitions = True

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        hyperparameters: DqnHyperparameters,
        settings: DqnSettings,
        device: torch.device,
        precision: str,
        seed: int,
    ) -> None:
        if not action.is_discrete:
            raise ConfigError("DQN needs a Discrete action space")
        self._hyperparameters = hyperparameters
        self._settings = settings
        self._network = make_actor_critic(
            network, observation=observation, action=action, seed=seed
        ).to(device)
        self._target = AveragedNetwork(self._network)
        self._optimizer = NamedAdam(
            self._network, learning_rate=hyperparameters.learning_rate, beta1=0.9
        )
        self._replay: Replay | None = None
        self._learner_updates = 0

    @property
    def rollout_length(self) -> int:
        return self._hyperparameters.rollout_length

    @property
    def gamma(self) -> float:
        return self._hyperparameters.gamma

    @property
    def learner_updates(self) -> int:
        return self._learner_updates

    @torch.inference_mode()
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        observation, action_mask = inputs.observation, inputs.action_mask
        network = self._network
        logits, value = network(network.normalize_observation(observation))
        policy = network.distribution(logits, action_mask)
        action = policy.sample(generator)
        return AlgorithmOutput(action=action, log_prob=policy.log_prob(action), value=value)

    @torch.inference_mode()
    def value(self, inputs: ActorInput) -> torch.Tensor:
        observation = inputs.observation
        return self._network.value(observation)

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        if len(rollout):
            new = Replay.of(rollout)
            replay = new if self._replay is None else self._replay.followed_by(new)
            self._replay = replay.rows(slice(-self._settings.capacity, None))
        if self._replay is None:
            return {}
        num_batches = self._hyperparameters.num_batches
        total = sum(self._step(self._replay, generator=generator) for _ in range(num_batches))
        return {"loss/q": total / num_batches}

    def _step(self, replay: Replay, *, generator: torch.Generator) -> float:
        size = (self._hyperparameters.batch_size,)
        batch = replay.rows(
            torch.randint(
                len(replay.action), size, generator=generator, device=replay.action.device
            )
        )
        q, value = self._values(batch.observation)
        with torch.no_grad():
            # y = r + gamma Q'(s', argmax_a Q(s', a)), over legal actions
            choice = mask_logits(self._values(batch.next_observation)[0], batch.next_mask)
            told = self._values(batch.next_observation, by_target=True)[0]
            best = told.gather(1, choice.argmax(1, keepdim=True)).squeeze(1)
            following = torch.where(batch.has_next, best, batch.next_value)
            target = batch.reward + self.gamma * following
        chosen = q.gather(1, batch.action[:, None]).squeeze(1)
        loss = functional.smooth_l1_loss(chosen, target) + functional.mse_loss(value, target)
        norm = self._optimizer.compute_gradients(loss, max_norm=10.0)
        if not bool(torch.isfinite(norm + loss.detach())):
            raise NonFiniteError("the loss of DQN is not finite")
        self._optimizer.step()
        self._target.follow(self._hyperparameters.target_rate)
        self._learner_updates += 1
        return float(loss.detach())

    def _values(
        self, observation: torch.Tensor, *, by_target: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Q of all actions [R, n], and the value [R]."""
        network = self._target.network if by_target else self._network
        logits, value = network(self._network.normalize_observation(observation))
        return logits * self._hyperparameters.temperature, value

    def weights(self) -> dict[str, torch.Tensor]:
        return copy_tensors(self._network.state_dict())

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        target = with_prefix(TARGET, self._target.tensors())
        return copy_tensors(self._optimizer.tensors() | target)

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        load_tensors(self._network.state_dict(), weights, what="weights")
        if optimizer_state is None:
            self._optimizer.reset()
            self._target.restart()
        else:
            target = without_prefix(TARGET, optimizer_state)
            adam = {k: v for k, v in optimizer_state.items() if not k.startswith(TARGET)}
            load_tensors(self._target.tensors(), target, what="target network")
            load_tensors(self._optimizer.tensors(), adam, what="optimizer")
        self._optimizer.apply(learning_rate=self._hyperparameters.learning_rate, beta1=0.9)
        self._replay = None
        self._learner_updates = learner_updates
