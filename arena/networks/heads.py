"""The masked categorical distribution over actions, as functions of logits.

Sampling adds Gumbel noise and takes the largest: Maddison, Tarlow and Minka, "A* Sampling" (NeurIPS
2014). Shapes: N rows, n actions. All functions expect float32 logits; under autocast cast before.
"""

from __future__ import annotations

import torch

SMALLEST_UNIFORM = 2.0**-25
"""Replacement for a draw of 0, half of the next larger number that can be drawn."""


def mask_logits(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Put illegal actions at the dtype's minimum, which is finite: infinities make the entropy NaN.

    Args:
        logits: Logits, float [N, n].
        action_mask: True for legal actions. bool [N, n], or None if all are legal.
    """
    if action_mask is None:
        return logits
    return logits.masked_fill(~action_mask, torch.finfo(logits.dtype).min)


def masked_log_probs(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Return log-probabilities of all actions. [N, n]; illegal ones stay at the dtype's minimum."""
    masked = mask_logits(logits, action_mask)
    # logsumexp is several times faster than log_softmax, whose kernel is slow for few actions.
    return masked - masked.logsumexp(dim=-1, keepdim=True)


def action_log_probs(log_probs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of one action per row. [N, n] and int64 [N] to [N]."""
    # [N, n], [N] -> [N, 1] -> [N]
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """Return the entropy in nats. [N, n] to [N]. Illegal actions add 0 times a finite number:
    exactly 0.
    """
    # H = -sum p log p
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def sample(logits: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """Draw one action per row. [N, n] to int64 [N].

    Takes masked logits, which need not be normalized. An illegal action is never drawn: the noise
    is in [-3, 17], illegal actions are at -3e38.
    """
    # Gumbel noise G = -log(-log(U)) with U in [0, 1). The largest U is 1 - 2**-24; 0 would give
    # -inf, and a row's only legal action would lose to an illegal one.
    uniform = torch.rand(
        logits.shape, generator=generator, device=logits.device, dtype=logits.dtype
    ).clamp_(min=SMALLEST_UNIFORM)
    # argmax_a (z_a + G_a) is distributed as softmax(z): no normalization is needed.
    return (logits - uniform.log_().neg_().log_()).argmax(dim=-1)


def greedy(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Return the likeliest legal action of each row, the first of equals. [N, n] to int64 [N]."""
    return mask_logits(logits, action_mask).argmax(dim=-1)
