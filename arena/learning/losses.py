"""The terms of PPO's loss and its diagnostics, as pure functions of float32 [M] tensors.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), https://arxiv.org/abs/1707.06347.
Approximate KL: Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
M: decisions of a minibatch.
"""

from __future__ import annotations

import torch

MAX_LOG_RATIO = 20.0
"""exp(20) is far outside of any clip range, and its square still a float32."""


def log_ratio(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Log of the probability ratio, guarded so that its exponential cannot overflow. [M]."""
    return (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(
    ratio: torch.Tensor, advantage: torch.Tensor, *, clip_coef: float
) -> torch.Tensor:
    """Policy loss (to be minimized): a ratio outside of 1 +- clip_coef gains nothing. Scalar."""
    # L = -E[min(r A, clip(r, 1 - c, 1 + c) A)]
    clipped = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


def value_loss(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean squared error. Scalar."""
    return (value - target).square().mean()


def clipped_value_loss(
    value: torch.Tensor, target: torch.Tensor, old_value: torch.Tensor, *, value_clip: float
) -> torch.Tensor:
    """The larger of the errors with and without staying near the value while playing. Scalar."""
    # L = E[max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2)]
    near = old_value + (value - old_value).clamp(-value_clip, value_clip)
    return torch.maximum((value - target).square(), (near - target).square()).mean()


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """KL(old || new) from samples of old: the estimator k3, unbiased and never negative. Scalar."""
    # k3 = E[(r - 1) - log r]
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(ratio: torch.Tensor, *, clip_coef: float) -> torch.Tensor:
    """Share of decisions whose ratio left 1 +- clip_coef, in [0, 1]. Scalar."""
    return ((ratio - 1.0).abs() > clip_coef).float().mean()


def explained_variance(value: torch.Tensor, target: torch.Tensor) -> float | None:
    """1 - Var(target - value) / Var(target): 1 is perfect, 0 as good as a constant.

    Returns:
        None where it is undefined: no variance in the targets, or nothing finite.
    """
    target_variance = float(target.double().var(correction=0)) if len(target) else 0.0
    if not 0.0 < target_variance < float("inf"):
        return None
    explained = 1.0 - float((target.double() - value.double()).var(correction=0)) / target_variance
    return explained if abs(explained) < float("inf") else None
