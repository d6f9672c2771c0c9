"""PPO's loss of one minibatch, and how far the policy has come.

Shapes: M rows of the minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.learning import losses
from arena.learning.batch import Batch
from arena.learning.hyperparameters import PpoHyperparameters
from arena.networks.distributions import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is minimized, and its parts. Scalars all.

    Attributes:
        total: The loss.
        terms: In the order of `arena.learning.progress.LOSSES`, but for the gradient's norm.
        distances: In the order of `arena.learning.progress.DISTANCES`, and that to the magnet where
            there is one.
    """

    total: torch.Tensor
    terms: tuple[torch.Tensor, ...]
    distances: tuple[torch.Tensor, ...]


def objective(
    distribution: Distribution,
    value: torch.Tensor,
    batch: Batch,
    *,
    magnet: Distribution | None,
    hyperparameters: PpoHyperparameters,
) -> Objective:
    """The loss of a minibatch.

    Args:
        distribution: Of the policy that learns, [M].
        value: Its normalized values. float32 [M].
        batch: What was played.
        magnet: The magnet's distribution, where there is one.
        hyperparameters: The weights of the terms, and what is clipped.
    """
    log_ratio = losses.log_ratio(distribution.log_prob(batch.action), batch.log_prob)
    ratio = log_ratio.exp()
    clip_coef = hyperparameters.clip_coef
    policy_loss = losses.clipped_surrogate(ratio, batch.advantage, clip_coef=clip_coef)
    value_loss = _value_loss(value, batch, value_clip=hyperparameters.value_clip)
    entropy = distribution.entropy().mean()
    # L = L_policy + c_value L_value - c_entropy H + c_magnet KL(pi || magnet)
    total = (
        policy_loss
        + hyperparameters.value_coef * value_loss
        - hyperparameters.entropy_coef * entropy
    )
    with torch.no_grad():
        kl = losses.approximate_kl(log_ratio)
        distances = [kl, losses.clip_fraction(ratio, clip_coef=clip_coef)]
    if magnet is not None:
        distances.append(distribution.divergence(magnet).mean())
        total = total + hyperparameters.magnet_coef * distances[-1]
    return Objective(
        total=total,
        terms=(policy_loss, value_loss, total, entropy),
        distances=tuple(distances),
    )


def _value_loss(value: torch.Tensor, batch: Batch, *, value_clip: float | None) -> torch.Tensor:
    if value_clip is None or batch.value is None:
        return losses.value_loss(value, batch.target)
    return losses.clipped_value_loss(value, batch.target, batch.value, value_clip=value_clip)
