"""The masked categorical distribution over actions, as functions of logits.

Sampling adds Gumbel noise and takes the largest: Maddison, Tarlow and Minka, "A* Sampling" (NeurIPS
2014). Shapes: N rows, n actions. All functions want float32 logits; under autocast cast before.
"""

from __future__ import annotations

import torch

SMALLEST_UNIFORM = 2.0**-25
"""Takes the place of 0, half of the next larger number that is drawn."""


def mask_logits(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Put illegal actions at the dtype's minimum, which is finite: infinities make entropy NaN.

    Args:
        logits: float [N, n].
        action_mask: True for legal actions. bool [N, n], or None if all are legal.
    """
    if action_mask is None:
        return logits
    return logits.masked_fill(~action_mask, torch.finfo(logits.dtype).min)


def masked_log_probs(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Log-probabilities of all actions. [N, n]; illegal ones stay at the dtype's minimum."""
    masked = mask_logits(logits, action_mask)
    # Several times faster than log_softmax, whose kernel is slow for a handful of actions.
    return masked - masked.logsumexp(dim=-1, keepdim=True)


def action_log_probs(log_probs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Log-probability of one action per row. [N, n] and int64 [N] to [N]."""
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """Entropy in nats. [N, n] to [N]. Illegal actions add 0 times a finite number: exactly 0."""
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def sample(logits: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """Draw one action per row. [N, n] to int64 [N].

    Takes masked logits; log-probabilities are such. An illegal action is never drawn: the noise is
    in [-3, 17], illegal actions are at -3e38.
    """
    # G = -log(-log(U)), U in [0, 1): the largest is 1 - 2**-24, and 0 would give -inf.
    uniform = torch.rand(
        logits.shape, generator=generator, device=logits.device, dtype=logits.dtype
    ).clamp_(min=SMALLEST_UNIFORM)
    return (logits - uniform.log_().neg_().log_()).argmax(dim=-1)


def greedy(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """The likeliest legal action of each row, the first of equals. [N, n] to int64 [N]."""
    return mask_logits(logits, action_mask).argmax(dim=-1)
