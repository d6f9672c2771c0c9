"""PPO's loss: minibatches, their forward pass, and the terms of the loss.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), https://arxiv.org/abs/1707.06347.
Approximate KL: Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
Shapes: M rows (a rollout's or a minibatch's), D decisions of a rollout, F features, n logits, P
parameters of a distribution, G numbers of a critic's input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from arena.experience import Sequences
from arena.learning.advantages import check_equal_shapes, clamped_log_ratio
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.sequences import Packed, pack
from arena.networks.actor_critic import ActorCritic
from arena.networks.distributions import Distribution
from arena.normalization import Exchange, exchanged_moments

ADVANTAGE_EPSILON = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of a minibatch, or of a whole rollout, as the loss reads them.

    Attributes:
        normalized: Observations after the normalizer. float32 [M, F].
        action_mask: bool [M, n], or None.
        action: int64 [M] or float32 [M, ...].
        log_prob: Log-probabilities under the policy that played. float32 [M].
        advantage: Advantages with mean 0 and deviation 1 over the rollout, or as they are where
            each minibatch is normalized. float32 [M].
        target: Normalized returns. float32 [M].
        value: Values predicted while playing, normalized with the statistics of that time; None
            where values are not clipped. float32 [M].
        magnet: Parameters of the magnet's distribution; None without one. float32 [M, P].
        old: Parameters of the policy's distribution before the update; None where the loss has no
            KL to it. float32 [M, P].
        packed: Order in which a recurrent policy unrolls the rows; None: it is not recurrent.
        critic_input: Normalized input of a centralized critic; None without one. [M, G].
    """

    normalized: torch.Tensor
    action_mask: torch.Tensor | None
    action: torch.Tensor
    log_prob: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor
    value: torch.Tensor | None = None
    magnet: torch.Tensor | None = None
    old: torch.Tensor | None = None
    packed: Packed | None = None
    critic_input: torch.Tensor | None = None

    def rows(self, index: torch.Tensor) -> Batch:
        """Return some rows, by one gather per tensor."""
        return Batch(
            normalized=self.normalized.index_select(0, index),
            action_mask=_rows(self.action_mask, index),
            action=self.action.index_select(0, index),
            log_prob=self.log_prob.index_select(0, index),
            advantage=self.advantage.index_select(0, index),
            target=self.target.index_select(0, index),
            value=_rows(self.value, index),
            magnet=_rows(self.magnet, index),
            old=_rows(self.old, index),
            critic_input=_rows(self.critic_input, index),
        )


def _rows(tensor: torch.Tensor | None, index: torch.Tensor) -> torch.Tensor | None:
    return None if tensor is None else tensor.index_select(0, index)


def minibatches(
    batch: Batch, sequences: Sequences | None, *, num_parts: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Yield all rows once in random order, in equal parts (sizes differ by one at most).

    Args:
        batch: Rows of a whole rollout.
        sequences: Sequences of a recurrent policy, which are kept whole; None: rows are divided.
        num_parts: Number of parts; fewer if there are fewer rows or sequences, none without any.
        generator: Source of the order.
    """
    total = len(batch.action) if sequences is None else len(sequences)
    if not total:
        return
    # The permutation is on the generator's device, as torch requires; the rows may be on another
    # one.
    permutation = torch.randperm(total, generator=generator, device=generator.device)
    # `min` keeps every part non-empty, because the mean over an empty part is NaN.
    for index in permutation.to(batch.action.device).tensor_split(min(num_parts, total)):
        if sequences is None:
            yield batch.rows(index)
        else:
            packed = pack(sequences, index)
            yield replace(batch.rows(packed.rows), packed=packed)


def predict(
    network: ActorCritic,
    normalized: torch.Tensor,
    *,
    packed: Packed | None = None,
    critic_input: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return parameters [M, P] and normalized values [M] of a minibatch's rows."""
    if packed is None:
        outputs: tuple[torch.Tensor, torch.Tensor] = network(normalized, critic_input)
        return outputs
    return network.unroll(
        normalized, batch_sizes=packed.batch_sizes, state=packed.state, critic_input=critic_input
    )


def predict_all(
    network: ActorCritic,
    normalized: torch.Tensor,
    sequences: Sequences | None,
    *,
    num_parts: int,
    critic_input: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return parameters [D, P] and normalized values [D], computed in parts as minibatches are."""
    if sequences is None:
        rows = normalized.tensor_split(num_parts)
        critic_rows = (
            [None] * len(rows) if critic_input is None else critic_input.tensor_split(num_parts)
        )
        outputs = [
            predict(network, part, critic_input=critic_part)
            for part, critic_part in zip(rows, critic_rows, strict=True)
            if len(part)
        ]
        return torch.cat([part[0] for part in outputs]), torch.cat([part[1] for part in outputs])
    everything = torch.arange(len(sequences), device=normalized.device)
    parts = [pack(sequences, index) for index in everything.tensor_split(num_parts) if len(index)]
    outputs = [
        predict(
            network,
            normalized[part.rows],
            packed=part,
            critic_input=_rows(critic_input, part.rows),
        )
        for part in parts
    ]
    # rows[i] is the rollout's row of output i; argsort inverts the permutation.
    place = torch.cat([part.rows for part in parts]).argsort()
    parameters = torch.cat([part[0] for part in outputs]).index_select(0, place)
    return parameters, torch.cat([part[1] for part in outputs]).index_select(0, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoLoss:
    """The loss of a minibatch with its terms and diagnostics, all of them scalars.

    Attributes:
        total: Loss to minimize.
        terms: Terms in the order of `arena.learning.update_metrics.LOSSES`, but for the norm of
            the gradient.
        diagnostics: Metrics in the order of `arena.learning.update_metrics.DIAGNOSTICS`, then those
            of ``RATIOS`` there, then the KL to the magnet and the KL from the old policy, where
            these are part of the loss.
    """

    total: torch.Tensor
    terms: tuple[torch.Tensor, ...]
    diagnostics: tuple[torch.Tensor, ...]


def ppo_loss(
    distribution: Distribution,
    value: torch.Tensor,
    batch: Batch,
    *,
    magnet: Distribution | None,
    old: Distribution | None = None,
    hyperparameters: PpoHyperparameters,
) -> PpoLoss:
    """Compute the loss of a minibatch.

    Args:
        distribution: Action distributions of the policy that learns, [M].
        value: Its normalized values. float32 [M].
        batch: Rows of the minibatch.
        magnet: Action distributions of the magnet, where there is one.
        old: Action distributions of the policy before the update, where the loss has a KL to it.
        hyperparameters: Weights of the terms, and clipping ranges.

    Raises:
        ValueError: If values or log-probabilities are not one per row.
    """
    # log r = log pi(a) - log pi_old(a)
    log_ratio = clamped_log_ratio(distribution.log_prob(batch.action), batch.log_prob)
    ratio = log_ratio.exp()
    clip_coef = hyperparameters.clip_coef
    policy_loss = clipped_surrogate(ratio, batch.advantage, clip_coef=clip_coef)
    if hyperparameters.value_clip is None or batch.value is None:
        value_loss = squared_value_loss(value, batch.target)
    else:
        value_loss = clipped_value_loss(
            value, batch.target, batch.value, value_clip=hyperparameters.value_clip
        )
    entropy = distribution.entropy().mean()
    # L = L_policy + c_value L_value - c_entropy H
    total = (
        policy_loss
        + hyperparameters.value_coef * value_loss
        - hyperparameters.entropy_coef * entropy
    )
    # Diagnostics need no gradient, because they are only reported.
    with torch.no_grad():
        diagnostics = [
            approximate_kl(log_ratio),
            clip_fraction(ratio, clip_coef=clip_coef),
            *ratio.aminmax(),
        ]
    if magnet is not None:
        # L += c_magnet KL(pi || magnet)
        diagnostics.append(distribution.divergence(magnet).mean())
        total = total + hyperparameters.magnet_coef * diagnostics[-1]
    if old is not None:
        # L += c_kl KL(pi_old || pi)
        diagnostics.append(old.divergence(distribution).mean())
        total = total + hyperparameters.kl_coef * diagnostics[-1]
    return PpoLoss(
        total=total,
        terms=(policy_loss, value_loss, total, entropy),
        diagnostics=tuple(diagnostics),
    )


def normalized_advantage(
    advantage: torch.Tensor, *, exchange: Exchange | None = None
) -> torch.Tensor:
    """Return advantages with mean 0 and deviation 1 over these rows; equal ones are 0. [M].

    Args:
        advantage: Advantages of this rank, none without rows. float32 [M].
        exchange: Connection to the other ranks, whose rows count, too; None without other ranks.
    """
    check_equal_shapes(1, advantage=advantage)
    if exchange is None:
        deviation, mean = torch.std_mean(advantage, correction=0)
    else:
        _, mean, variance = exchanged_moments(
            exchange,
            len(advantage),
            lambda: torch.var_mean(advantage.double(), correction=0)[::-1],
            size=1,
        )
        deviation, mean = variance.sqrt().float(), mean.float()
    return (advantage - mean) / (deviation + ADVANTAGE_EPSILON)


def clipped_surrogate(
    ratio: torch.Tensor, advantage: torch.Tensor, *, clip_coef: float
) -> torch.Tensor:
    """Return the policy loss: a ratio outside of 1 +- clip_coef gains nothing. [M] to a scalar."""
    check_equal_shapes(1, ratio=ratio, advantage=advantage)
    clipped = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    # L = -E[min(r A, clip(r, 1 - c, 1 + c) A)]
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


def squared_value_loss(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error. [M] to a scalar."""
    check_equal_shapes(1, value=value, target=target)
    # L = E[(v - R)^2]
    return (value - target).square().mean()


def clipped_value_loss(
    value: torch.Tensor, target: torch.Tensor, old_value: torch.Tensor, *, value_clip: float
) -> torch.Tensor:
    """Return the larger of the errors with and without staying near the old value. Scalar."""
    check_equal_shapes(1, value=value, target=target, old_value=old_value)
    near = old_value + (value - old_value).clamp(-value_clip, value_clip)
    # L = E[max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2)]
    return torch.maximum((value - target).square(), (near - target).square()).mean()


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Estimate KL(old || new) from samples of old, by k3: unbiased, never negative. Scalar."""
    check_equal_shapes(1, log_ratio=log_ratio)
    # k3 = E[(r - 1) - log r]
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(ratio: torch.Tensor, *, clip_coef: float) -> torch.Tensor:
    """Return the share of decisions whose ratio left 1 +- clip_coef, in [0, 1]. Scalar."""
    check_equal_shapes(1, ratio=ratio)
    # E[|r - 1| > c]
    return ((ratio - 1.0).abs() > clip_coef).float().mean()


def explained_variance(
    value: torch.Tensor, target: torch.Tensor, *, exchange: Exchange | None = None
) -> float | None:
    """Return the explained variance: 1 is perfect, 0 as good as a constant.

    Args:
        value: Predictions. float32 [M].
        target: Returns. float32 [M].
        exchange: Connection to the other ranks, whose rows count, too; None without other ranks.

    Returns:
        None where it is undefined: no variance in the targets, or nothing finite.
    """
    check_equal_shapes(1, value=value, target=target)
    # float64 is used, because the variance of large returns would cancel in float32.
    returns, errors = target.double(), target.double() - value.double()
    if exchange is not None:
        _, _, variances = exchanged_moments(
            exchange,
            len(target),
            lambda: torch.var_mean(torch.stack([returns, errors], 1), 0, correction=0)[::-1],
            size=2,
        )
        target_variance, error_variance = variances.tolist()
    else:
        target_variance, error_variance = (
            float(numbers.var(correction=0)) if len(target) else 0.0
            for numbers in (returns, errors)
        )
    if not 0.0 < target_variance < float("inf"):
        return None
    # 1 - Var(R - v) / Var(R)
    explained = 1.0 - error_variance / target_variance
    return explained if abs(explained) < float("inf") else None
