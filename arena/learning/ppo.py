"""Proximal policy optimization with an actor-critic that shares its trunk.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), https://arxiv.org/abs/1707.06347;
Andrychowicz et al., "What Matters In On-Policy Reinforcement Learning?" (2021) for the choices.
An update spans three files: this one (the steps), `ppo_loss` (minibatches and losses) and `acting`
(the forward pass of play). Shapes: D decisions of a rollout, F features of an observation, P
parameters of a distribution, M decisions of a minibatch, G numbers of a critic's input.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Generic, TypeVar

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.errors import NonFiniteError
from arena.experience import Rollout, Sequences
from arena.learning.acting import ActingNetwork, product_dtype
from arena.learning.advantages import with_vtrace_targets
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.optimizer import KlFactor, NamedAdam, RankSteps
from arena.learning.ppo_loss import (
    Batch,
    PpoLoss,
    explained_variance,
    minibatches,
    normalized_advantage,
    ppo_loss,
    predict,
    predict_all,
)
from arena.learning.update_metrics import MAGNET_KL, METRICS, OLD_KL, UpdateMetrics
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.weights import copy_tensors, load_tensors
from arena.normalization import Exchange, all_of
from arena.spaces import ActionLayout, ObservationLayout

MAX_SKIPPED = 3
"""Number of skipped updates in a row after which training fails."""

LIVE = "live."
"""Prefix of the names of the live weights, where an average of them plays."""

MAGNET = "magnet."
"""Prefix of the names of the magnet's weights."""

FACTOR = "factor."
"""Prefix of the name of the state of `KlFactor`."""


NetworkT = TypeVar("NetworkT", bound=nn.Module)


class Ppo(ActingNetwork):
    """An `arena.core.Algorithm`: one policy's network and optimizer.

    The weights are always finite: a step or rollout that would make a number non-finite is undone.
    """

    Hyperparameters = PpoHyperparameters
    Settings = PpoSettings

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        hyperparameters: PpoHyperparameters,
        device: torch.device,
        precision: str,
        seed: int,
        settings: PpoSettings | None = None,
        critic_input: ObservationLayout | None = None,
    ) -> None:
        """Start with fresh weights and a fresh optimizer.

        Args:
            network: Architecture of the policy.
            observation: Layout of the observations.
            action: Layout of the actions.
            hyperparameters: Values, fixed for this object; a mutation makes a new object and loads.
            device: Device of the network.
            precision: Precision of products while it trains; see `product_dtype`.
            seed: Seed of the fresh weights.
            settings: Settings of the population; None: the defaults.
            critic_input: Layout of a centralized critic's input, where ``network`` has one.
        """
        self._hyperparameters = hyperparameters
        self._settings = settings or PpoSettings()
        made = make_actor_critic(
            network, observation=observation, action=action, seed=seed, critic_input=critic_input
        )
        dtype = product_dtype(precision, network=network, device=device, observation=observation)
        super().__init__(made.to(device), product_dtype=dtype)
        # The average plays instead of the live weights; the loss keeps the policy near the magnet.
        self._average = AveragedNetwork(self._network) if hyperparameters.ema_decay else None
        self._magnet = AveragedNetwork(self._network) if hyperparameters.magnet_coef else None
        # The names follow the order of `_step`, which ends with `PpoLoss.diagnostics`.
        self._metrics = (
            *METRICS,
            *([MAGNET_KL] if self._magnet is not None else []),
            *([OLD_KL] if hyperparameters.kl_coef else []),
        )
        # Without a target KL the learning rate is constant.
        self._factor = KlFactor(hyperparameters.desired_kl) if hyperparameters.desired_kl else None
        self._optimizer = NamedAdam(self._network, **self._adam_numbers)
        self._learner_updates = 0
        self._skipped_in_a_row = 0
        self._exchange: Exchange | None = None
        self._rank_steps: RankSteps | None = None

    def join(self, exchange: Exchange | None) -> None:
        """Learn together with the other ranks from now on; see `arena.core.LearnsInRanks`."""
        self._exchange = exchange
        if exchange is not None and self._rank_steps is None:
            self._rank_steps = RankSteps(self._optimizer)

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
    def needs_transitions(self) -> bool:
        """Return whether advantages are recomputed from transitions, by V-trace."""
        return self._settings.advantages == "vtrace"

    @property
    def learner_updates(self) -> int:
        """Optimizer steps so far."""
        return self._learner_updates

    @property
    def bptt_length(self) -> int | None:
        """Decisions of the longest sequence; None: as long as the rollout."""
        return self._settings.bptt_length

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from one rollout.

        Returns:
            Flat, finite metrics: those of `arena.learning.update_metrics`,
            ``value/explained_variance``, ``gradient/skipped``, ``optimizer/learning_rate`` and
            ``optimizer/updates``; undefined ones are left out. A rollout without decisions changes
            nothing and has no metrics.

        Raises:
            NonFiniteError: After three updates in a row that had to be skipped, within one rollout
                or over several. The weights are finite and as they were before the rollout or
                after the last step that was carried out.
        """
        num_rows = self._num_rows(rollout)
        # Every rank knows the row counts of all ranks, so all ranks return here together.
        if not any(num_rows):
            return {}
        live = self._live()
        saved = {name: tensor.clone() for name, tensor in live.items()}
        updates_before, skipped_before = self._learner_updates, self._skipped_in_a_row
        try:
            progress = self._learn(rollout, most_rows=max(num_rows), generator=generator)
        finally:
            # Weights are checked after an error, too, because `_skip` may raise in the middle of
            # the epochs.
            undone = not self._weights_are_sane()
            if undone:
                load_tensors(live, saved, what="weights")
                self._learner_updates = updates_before
        if undone:
            # The whole rollout counts as skipped: no step was refused, but the weights became
            # non-finite.
            progress = UpdateMetrics(self._metrics)
            progress.add(None)
            self._skipped_in_a_row = skipped_before
            self._skip()
        else:
            self._follow(rollout)
        explained = explained_variance(rollout.value, rollout.return_, exchange=self._exchange)
        metrics = {
            **progress.results(),
            **({} if explained is None else {"value/explained_variance": explained}),
            "gradient/skipped": float(progress.skipped),
            "optimizer/learning_rate": self._optimizer.learning_rate,
            "optimizer/updates": float(self._learner_updates),
        }
        # The KL is measured before each step, so with a single step it is always 0.
        kl = metrics.get("policy/kl") if self._learner_updates > updates_before + 1 else None
        if self._factor is not None and kl is not None:
            self._factor.follow(kl)
            self._optimizer.apply(**self._adam_numbers)
        return metrics

    def update_normalizers(
        self, observation: torch.Tensor, *, critic_input: torch.Tensor | None
    ) -> None:
        """Update the normalizers with inputs of decisions; no weight changes."""
        # Returns need no warm-up: `_prepare` normalizes with the first rollout's statistics.
        if self._network.observation_normalizer is not None:
            self._network.observation_normalizer.update(observation, exchange=self._exchange)
        if self._network.critic_normalizer is not None and critic_input is not None:
            self._network.critic_normalizer.update(critic_input, exchange=self._exchange)

    def _follow(self, rollout: Rollout) -> None:
        """Update normalizers, magnet and average, once per rollout."""
        # Normalizers change only after the update: the updated policy must be the one that played.
        self.update_normalizers(rollout.observation, critic_input=rollout.critic_input)
        if self._magnet is not None:
            self._magnet.follow(self._hyperparameters.magnet_rate)
        if self._average is not None:
            self._average.follow(1.0 - self._hyperparameters.ema_decay)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return network and normalizers: all that playing needs. float32 CPU copies."""
        # Averaged parameters replace the live ones; normalizers are the live network's.
        averaged = {} if self._average is None else self._average.tensors()
        return copy_tensors({**self._network.state_dict(), **averaged})

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Return ``exp_avg.<parameter>``, ``exp_avg_sq.<parameter>``, ``step.<parameter>``.

        With a magnet also ``magnet.<parameter>``; where an average plays, ``live.<parameter>``;
        where the learning rate follows the KL, ``factor.steps``.
        """
        tensors = self._optimizer.tensors()
        if self._magnet is not None:
            tensors |= with_prefix(MAGNET, self._magnet.tensors())
        if self._average is not None:
            tensors |= with_prefix(LIVE, dict(self._network.named_parameters()))
        if self._factor is not None:
            tensors |= with_prefix(FACTOR, self._factor.tensors())
        return copy_tensors(tensors)

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        """Take over weights and optimizer (None: a fresh one), then apply the hyperparameters.

        A magnet or an average that the state lacks starts from the weights, and a factor of the
        learning rate starts from 1; one that the hyperparameters disable is dropped.

        Raises:
            CheckpointCorrupt: If names, shapes or dtypes differ from this architecture's, or a
                number is not finite.
        """
        state = optimizer_state or {}
        # Where an average plays, these are the average's weights; the live ones are loaded below.
        load_tensors(self._network.state_dict(), weights, what="weights")
        if self._average is not None:
            self._average.restart()
        if live := without_prefix(LIVE, state):
            load_tensors(dict(self._network.named_parameters()), live, what="live weights")
        if self._magnet is not None:
            self._magnet.restart()
            if magnet := without_prefix(MAGNET, state):
                load_tensors(self._magnet.tensors(), magnet, what="magnet")
        if self._factor is not None:
            self._factor.reset()
            if factor := without_prefix(FACTOR, state):
                load_tensors(self._factor.tensors(), factor, what="factor")
        if optimizer_state is None:
            self._optimizer.reset()
        else:
            # All remaining tensors belong to Adam.
            others = (LIVE, MAGNET, FACTOR)
            moments = {k: v for k, v in state.items() if not k.startswith(others)}
            load_tensors(self._optimizer.tensors(), moments, what="optimizer")
        # Hyperparameters are set last, because the policy keeps its own, whatever state was
        # loaded.
        self._optimizer.apply(**self._adam_numbers)
        self._learner_updates = learner_updates
        self._skipped_in_a_row = 0

    @property
    def _adam_numbers(self) -> dict[str, float]:
        factor = 1.0 if self._factor is None else self._factor.value
        return {
            "learning_rate": self._hyperparameters.learning_rate * factor,
            "beta1": self._hyperparameters.adam_beta1,
            "beta2": self._hyperparameters.adam_beta2,
            "eps": self._hyperparameters.adam_eps,
        }

    def _num_rows(self, rollout: Rollout) -> list[int]:
        """Return the number of rows, or of sequences of a recurrent policy, in each rank's
        rollout.
        """
        own = len(rollout) if rollout.sequences is None else len(rollout.sequences)
        if self._exchange is None:
            return [own]
        return [int(number) for number in all_of(self._exchange, own).flatten().tolist()]

    def _learn(
        self, rollout: Rollout, *, most_rows: int, generator: torch.Generator
    ) -> UpdateMetrics:
        """Take all epochs over one rollout.

        Args:
            rollout: Rollout of this rank.
            most_rows: Number of rows, or sequences, of the rank that has the most.
            generator: Source of the order.
        """
        progress = UpdateMetrics(self._metrics)
        batch = self._prepare(rollout, progress=progress)
        target_kl = self._hyperparameters.target_kl
        num_parts = min(self._hyperparameters.num_minibatches, most_rows)
        for _ in range(self._hyperparameters.num_epochs):
            progress.begin_epoch()
            parts: Iterator[Batch | None] = minibatches(
                batch, rollout.sequences, num_parts=num_parts, generator=generator
            )
            # All ranks take the same number of steps; a rank with fewer rows has none in the last
            # ones.
            for part in islice(chain(parts, repeat(None)), num_parts):
                progress.add(self._step(part))
            # `progress.results` has the mean of this epoch (`DIAGNOSTICS`).
            if target_kl is not None and progress.results().get("policy/kl", 0.0) > target_kl:
                break
        return progress

    @torch.no_grad()
    def _prepare(self, rollout: Rollout, *, progress: UpdateMetrics) -> Batch:
        """Compute the rows that all epochs use; statistics are constant during these epochs."""
        normalized = self._network.normalize_observation(rollout.observation)
        normalized = self._to_product_dtype(normalized)
        critic_input = rollout.critic_input
        if critic_input is not None:
            critic_input = self._network.normalize_critic_input(critic_input)
            critic_input = self._to_product_dtype(critic_input)
        if self._settings.advantages == "vtrace" and len(rollout):
            rollout = self._vtrace_targets(rollout, normalized, critic_input)
        returns = self._network.return_normalizer
        # Predictions are normalized with the statistics under which they were made, which restores
        # the network's own outputs.
        predicted = returns.normalize(rollout.value)
        if self._settings.normalize_returns:
            # Return statistics are updated before the targets are computed, because the targets
            # use this rollout's units.
            returns.update(rollout.return_.unsqueeze(1), exchange=self._exchange)
        advantage = rollout.advantage
        progress.add_rollout(advantage, exchange=self._exchange)
        if self._settings.advantage_normalization == "rollout":
            advantage = normalized_advantage(advantage, exchange=self._exchange)
        magnet = old = None
        # A rank may have no rows.
        if self._magnet is not None and len(rollout):
            magnet, _ = self._predict(
                self._magnet.network, normalized, critic_input, rollout.sequences
            )
        if self._hyperparameters.kl_coef and len(rollout):
            old, _ = self._predict(self._network, normalized, critic_input, rollout.sequences)
        return Batch(
            normalized=normalized,
            action_mask=rollout.action_mask,
            action=rollout.action,
            log_prob=rollout.log_prob,
            advantage=advantage,
            target=returns.normalize(rollout.return_),
            value=None if self._hyperparameters.value_clip is None else predicted,
            magnet=magnet,
            old=old,
            critic_input=critic_input,
        )

    def _vtrace_targets(
        self, rollout: Rollout, normalized: torch.Tensor, critic_input: torch.Tensor | None = None
    ) -> Rollout:
        """Return the rollout with the advantages and targets of V-trace."""
        parameters, value = self._predict(
            self._network, normalized, critic_input, rollout.sequences
        )
        return with_vtrace_targets(
            rollout,
            value=self._network.return_normalizer.denormalize(value),
            log_prob=self._distribution(parameters, rollout.action_mask).log_prob(rollout.action),
            hyperparameters=self._hyperparameters,
        )

    def _predict(
        self,
        network: ActorCritic,
        normalized: torch.Tensor,
        critic_input: torch.Tensor | None,
        sequences: Sequences | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return parameters [D, P] and normalized values [D]."""
        num_parts = self._hyperparameters.num_minibatches
        with self._autocast():
            return predict_all(
                network, normalized, sequences, num_parts=num_parts, critic_input=critic_input
            )

    def _step(self, batch: Batch | None) -> list[float] | None:
        """Take one optimizer step; return its metrics in order, or None if it had to be skipped.

        Args:
            batch: Minibatch; None: this rank has no rows in it.
        """
        if self._settings.advantage_normalization == "minibatch":
            none = torch.zeros(0, device=self._network.return_normalizer.mean.device)
            advantage = none if batch is None else batch.advantage
            advantage = normalized_advantage(advantage, exchange=self._exchange)
            batch = None if batch is None else replace(batch, advantage=advantage)
        loss = None if batch is None else self._loss(batch)
        max_norm, exchange, rank_steps = (
            self._hyperparameters.max_grad_norm,
            self._exchange,
            self._rank_steps,
        )
        if exchange is None or rank_steps is None:
            assert loss is not None
            norm = self._optimizer.compute_gradients(loss.total, max_norm=max_norm)
            with torch.no_grad():  # Stacking the numbers needs only one transfer from the device.
                metrics = torch.stack([*loss.terms, norm, *loss.diagnostics])
            numbers: list[float] = metrics.tolist()
            step = self._optimizer.step
        else:
            numbers = rank_steps.compute_gradient(
                loss,
                num_rows=0 if batch is None else len(batch.action),
                names=self._metrics,
                max_norm=max_norm,
                exchange=exchange,
            )
            step = rank_steps.step
        # The check precedes the step, because a non-finite number would stay in Adam's moments.
        if not all(map(math.isfinite, numbers)):
            self._skip()
            return None
        step()
        self._learner_updates += 1
        self._skipped_in_a_row = 0
        return numbers

    def _loss(self, batch: Batch) -> PpoLoss:
        """Compute the loss of a minibatch."""
        with self._autocast():
            parameters, value = predict(
                self._network,
                batch.normalized,
                packed=batch.packed,
                critic_input=batch.critic_input,
            )
        magnet, old = (
            None if given is None else self._distribution(given, batch.action_mask)
            for given in (batch.magnet, batch.old)
        )
        return ppo_loss(
            self._distribution(parameters, batch.action_mask),
            value,
            batch,
            magnet=magnet,
            old=old,
            hyperparameters=self._hyperparameters,
        )

    def _skip(self) -> None:
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= MAX_SKIPPED:
            raise NonFiniteError(
                f"a loss, gradient or weight was not finite in {MAX_SKIPPED} updates in a row, "
                f"after {self._learner_updates} updates with learning_rate "
                f"{self._optimizer.learning_rate!r}"
            )

    def _live(self) -> dict[str, torch.Tensor]:
        """Return every tensor that an update may change, not copied."""
        return self._network.state_dict() | self._optimizer.tensors()

    def _weights_are_sane(self) -> bool:
        """Return whether all tensors are finite, and the squares of their norms too."""
        # Weights of 1e20 are finite, but their squares overflow float32, so norms are checked,
        # too.
        norms = torch.stack([tensor.norm() for tensor in self._live().values()])
        return bool(norms.isfinite().all())


class AveragedNetwork(Generic[NetworkT]):
    """A network that follows a live one and shares no memory with it: an exponential average.

    Two things are such averages: the weights that play where the live ones are too restless (Polyak
    and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992), and the magnet,
    the policy's own past that a loss holds it near (Sokota et al., "A Unified Approach to
    Reinforcement Learning, Quantal Response Equilibria, and Two-Player Zero-Sum Games", ICLR 2023).
    """

    def __init__(self, live: NetworkT) -> None:
        """Start as a copy of the live network."""
        self.network = copy.deepcopy(live).requires_grad_(False)
        """Computes with the averaged parameters."""
        # The lists follow the order of `parameters()`, for one fused operation over all of them.
        self._average: list[torch.Tensor] = list(self.network.parameters())
        self._live: list[torch.Tensor] = list(live.parameters())
        self._buffers = list(zip(self.network.buffers(), live.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Move towards the live network."""
        # a <- a + rate (w - a)
        torch._foreach_lerp_(self._average, self._live, rate)
        self._copy_buffers()

    @torch.no_grad()
    def restart(self) -> None:
        """Copy the live network."""
        torch._foreach_copy_(self._average, self._live)
        self._copy_buffers()

    def _copy_buffers(self) -> None:
        # Statistics of normalizers are copied, not averaged, because the live ones are more exact.
        for own, live in self._buffers:
            own.copy_(live)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the live average by name of parameter."""
        return {name: tensor.detach() for name, tensor in self.network.named_parameters()}


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with a prefix before their names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors whose name begins with a prefix, with the prefix removed."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
