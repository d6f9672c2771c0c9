"""Proximal policy optimization with an actor-critic that shares its trunk.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), https://arxiv.org/abs/1707.06347;
Andrychowicz et al., "What Matters In On-Policy Reinforcement Learning?" (2021) for the choices.
Shapes: N rows, F features of an observation, n actions, D decisions of a rollout, M of a minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from arena.config import NetworkConfig
from arena.errors import NonFiniteError
from arena.learning import losses
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.optimizer import NamedAdam
from arena.learning.precision import product_dtype
from arena.networks import heads
from arena.networks.make import make_actor_critic
from arena.networks.weights import copy_tensors, load_tensors
from arena.rollout.buffer import Rollout

MAX_SKIPPED = 3
"""So many skipped updates in a row are no accident."""

ADVANTAGE_EPSILON = 1e-8

LOSSES = ("loss/policy", "loss/value", "loss/total", "policy/entropy", "gradient/norm")
"""Means over the rollout's optimizer steps."""

DISTANCES = ("policy/kl", "policy/clip_fraction")
"""Means over the last epoch: how far the policy has come from the one that played."""

METRICS = LOSSES + DISTANCES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What a minibatch (or the whole rollout) gives the loss. D or M rows.

    Attributes:
        normalized: Observations after the normalizer. float32 [M, F].
        action_mask: bool [M, n], or None.
        action: int64 [M].
        log_prob: Of the policy that played. float32 [M].
        advantage: Mean 0 and deviation 1 over the rollout. float32 [M].
        target: Normalized return. float32 [M].
    """

    normalized: torch.Tensor
    action_mask: torch.Tensor | None
    action: torch.Tensor
    log_prob: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor

    def rows(self, index: torch.Tensor) -> _Batch:
        """One gather per tensor."""
        mask = self.action_mask
        return _Batch(
            normalized=self.normalized.index_select(0, index),
            action_mask=None if mask is None else mask.index_select(0, index),
            action=self.action.index_select(0, index),
            log_prob=self.log_prob.index_select(0, index),
            advantage=self.advantage.index_select(0, index),
            target=self.target.index_select(0, index),
        )


class Ppo:
    """An `arena.core.Algorithm`: one policy's network and optimizer.

    What makes a number non-finite is undone, not carried on: the weights are finite always.
    """

    Hyperparameters = PpoHyperparameters

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation_size: int,
        num_actions: int,
        hyperparameters: PpoHyperparameters,
        device: torch.device,
        precision: str,
        seed: int,
    ) -> None:
        """Start with fresh weights and a fresh optimizer.

        Args:
            network: The architecture.
            observation_size: F.
            num_actions: n.
            hyperparameters: For good; a mutation is a new object and a load.
            device: Where the network lives.
            precision: Of the products while it trains; see `arena.learning.precision`.
            seed: Of the fresh weights.
        """
        self._hyperparameters = hyperparameters
        self._device = device
        self._product_dtype = product_dtype(precision, network=network, device=device)
        self._network = make_actor_critic(
            network, observation_size=observation_size, num_actions=num_actions, seed=seed
        ).to(device)
        self._optimizer = NamedAdam(
            self._network,
            learning_rate=hyperparameters.learning_rate,
            beta1=hyperparameters.adam_beta1,
        )
        self._learner_updates = 0
        self._skipped_in_a_row = 0

    @property
    def rollout_length(self) -> int:
        """Calls of ``step`` in one rollout."""
        return self._hyperparameters.rollout_length

    @property
    def gamma(self) -> float:
        """Discount per own decision."""
        return self._hyperparameters.gamma

    @property
    def gae_lambda(self) -> float:
        """Bias (0) against variance (1) of the advantages."""
        return self._hyperparameters.gae_lambda

    @property
    def learner_updates(self) -> int:
        """Optimizer steps so far."""
        return self._learner_updates

    @torch.inference_mode()
    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample actions while training: actions, log-probabilities, values, each [N]."""
        network = self._network
        # As in the update, so that the first ratio is exactly 1.
        with self._autocast():
            logits, value = network(network.normalize_observation(observation))
        log_probs = heads.masked_log_probs(logits, action_mask)
        action = heads.sample(log_probs, generator=generator)
        return (
            action,
            heads.action_log_probs(log_probs, action),
            network.return_normalizer.denormalize(value),
        )

    @torch.inference_mode()
    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Expected discounted return. float32 [N, F] to float32 [N]."""
        with self._autocast():
            return self._network.value(observation)

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from one rollout.

        Returns:
            Flat, finite metrics: those of `METRICS`, ``value/explained_variance``,
            ``gradient/skipped``, ``optimizer/learning_rate`` and ``optimizer/updates``. A rollout
            without decisions changes nothing.

        Raises:
            NonFiniteError: After three updates in a row that had to be skipped, within one rollout
                or over several. The weights are finite and as they were before the rollout or
                after the last step that was carried out.
        """
        live = self._live()
        saved = {name: tensor.clone() for name, tensor in live.items()}
        updates_before, skipped_before = self._learner_updates, self._skipped_in_a_row
        try:
            progress = self._learn(rollout, generator=generator)
        finally:
            undone = not self._weights_are_sane()
            if undone:
                load_tensors(live, saved, what="weights")
                self._learner_updates = updates_before
        if undone:
            # No step was refused and still they led nowhere: the rollout counts as one skipped.
            progress = _Progress()
            progress.add(None)
            self._skipped_in_a_row = skipped_before
            self._skip()
        elif self._network.observation_normalizer is not None:
            # Only now: the policy that is updated must be the one that played.
            self._network.observation_normalizer.update(rollout.observation)
        return progress.means() | {
            "value/explained_variance": losses.explained_variance(rollout.value, rollout.return_),
            "gradient/skipped": float(progress.skipped),
            "optimizer/learning_rate": self._optimizer.learning_rate,
            "optimizer/updates": float(self._learner_updates),
        }

    def weights(self) -> dict[str, torch.Tensor]:
        """Network and normalizers: all that playing needs. float32 CPU copies."""
        return copy_tensors(self._network.state_dict())

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """``exp_avg.<parameter>``, ``exp_avg_sq.<parameter>``, ``step.<parameter>``."""
        return copy_tensors(self._optimizer.tensors())

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        """Take over weights and optimizer (None: a fresh one), then apply the hyperparameters.

        Raises:
            CheckpointCorrupt: If names, shapes or dtypes differ from this architecture's, or a
                number is not finite.
        """
        load_tensors(self._network.state_dict(), weights, what="weights")
        if optimizer_state is None:
            self._optimizer.reset()
        else:
            load_tensors(self._optimizer.tensors(), optimizer_state, what="optimizer")
        self._optimizer.apply(
            learning_rate=self._hyperparameters.learning_rate,
            beta1=self._hyperparameters.adam_beta1,
        )
        self._learner_updates = learner_updates
        self._skipped_in_a_row = 0

    def _learn(self, rollout: Rollout, *, generator: torch.Generator) -> _Progress:
        """All epochs over one rollout."""
        progress = _Progress()
        if len(rollout) == 0:
            return progress
        batch = self._prepare(rollout)
        target_kl = self._hyperparameters.target_kl
        for _ in range(self._hyperparameters.num_epochs):
            progress.begin_epoch()
            for index in self._minibatches(len(rollout), generator=generator):
                progress.add(self._step(batch.rows(index)))
            if target_kl is not None and progress.means()["policy/kl"] > target_kl:
                break
        return progress

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> _Batch:
        """Normalize once what all epochs use; the statistics stay put meanwhile."""
        returns = self._network.return_normalizer
        returns.update(rollout.return_.unsqueeze(1))
        deviation, mean = torch.std_mean(rollout.advantage, correction=0)
        return _Batch(
            normalized=self._network.normalize_observation(rollout.observation).to(
                self._product_dtype
            ),
            action_mask=rollout.action_mask,
            action=rollout.action,
            log_prob=rollout.log_prob,
            advantage=(rollout.advantage - mean) / (deviation + ADVANTAGE_EPSILON),
            target=returns.normalize(rollout.return_),
        )

    def _minibatches(
        self, num_decisions: int, *, generator: torch.Generator
    ) -> Sequence[torch.Tensor]:
        """One permutation in equal parts (sizes differ by one at most), none of them empty."""
        permutation = torch.randperm(num_decisions, generator=generator, device=generator.device)
        parts = min(self._hyperparameters.num_minibatches, num_decisions)
        return permutation.to(self._device).tensor_split(parts)

    def _step(self, batch: _Batch) -> list[float] | None:
        """One optimizer step. Returns METRICS in order, or None if it had to be skipped."""
        hyperparameters = self._hyperparameters
        with self._autocast():
            logits, value = self._network(batch.normalized)
        log_probs = heads.masked_log_probs(logits, batch.action_mask)
        log_ratio = losses.log_ratio(
            heads.action_log_probs(log_probs, batch.action), batch.log_prob
        )
        ratio = log_ratio.exp()
        clip_coef = hyperparameters.clip_coef
        policy_loss = losses.clipped_surrogate(ratio, batch.advantage, clip_coef=clip_coef)
        value_loss = losses.value_loss(value, batch.target)
        entropy = heads.entropy(log_probs).mean()
        # L = L_policy + c_value L_value - c_entropy H
        total = (
            policy_loss
            + hyperparameters.value_coef * value_loss
            - hyperparameters.entropy_coef * entropy
        )
        norm = self._optimizer.compute_gradients(total, max_norm=hyperparameters.max_grad_norm)
        with torch.no_grad():
            kl = losses.approximate_kl(log_ratio)
            clipped = losses.clip_fraction(ratio, clip_coef=clip_coef)
            # One transfer for all numbers.
            metrics = torch.stack([policy_loss, value_loss, total, entropy, norm, kl, clipped])
        numbers: list[float] = metrics.tolist()
        if not all(map(math.isfinite, numbers)):
            self._skip()
            return None
        self._optimizer.step()
        self._learner_updates += 1
        self._skipped_in_a_row = 0
        return numbers

    def _skip(self) -> None:
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= MAX_SKIPPED:
            raise NonFiniteError(
                f"a loss, gradient or weight was not finite in {MAX_SKIPPED} updates in a row, "
                f"after {self._learner_updates} updates with learning_rate "
                f"{self._optimizer.learning_rate!r}"
            )

    def _autocast(self) -> AbstractContextManager[object]:
        if self._product_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._product_dtype)

    def _live(self) -> dict[str, torch.Tensor]:
        """Every tensor that an update may change, not copied."""
        return self._network.state_dict() | self._optimizer.tensors()

    def _weights_are_sane(self) -> bool:
        """Whether all tensors are finite, and the squares of their lengths too.

        Weights of 1e19 are finite, but nothing computed from them is.
        """
        norms = torch.stack([tensor.norm() for tensor in self._live().values()])
        return bool(norms.isfinite().all())


class _Progress:
    """Sums up the optimizer steps of one rollout."""

    def __init__(self) -> None:
        self.skipped = 0
        self._earlier: list[list[float]] = []
        self._epoch: list[list[float]] = []

    def begin_epoch(self) -> None:
        """What comes next is the last epoch, as far as anyone knows."""
        self._earlier += self._epoch
        self._epoch = []

    def add(self, metrics: list[float] | None) -> None:
        """Count one step: METRICS in order, or None for a skipped one."""
        if metrics is None:
            self.skipped += 1
        else:
            self._epoch.append(metrics)

    def means(self) -> dict[str, float]:
        """Means over all steps, but over the last epoch for DISTANCES; 0 without any step."""
        everything = _column_means(self._earlier + self._epoch)
        return everything | {name: _column_means(self._epoch)[name] for name in DISTANCES}


def _column_means(steps: Sequence[Sequence[float]]) -> dict[str, float]:
    if not steps:
        return dict.fromkeys(METRICS, 0.0)
    columns = zip(*steps, strict=True)
    return {
        name: math.fsum(column) / len(steps) for name, column in zip(METRICS, columns, strict=True)
    }
