"""The masked categorical distribution over actions, as functions of logits.

Sampling adds Gumbel noise and takes the largest: Maddison, Tarlow and Minka, "A* Sampling" (NeurIPS
2014). Shapes: N rows, n actions. All functions want float32 logits; under autocast cast before.
"""

from __future__ import annotations

import torch


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


def sample(log_probs: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """Draw one action per row. [N, n] to int64 [N].

    An illegal action is never drawn: the noise is at most 17, illegal actions are at -3e38.
    """
    # G = -log(-log(U)), U in [0, 1): U = 0 gives -inf, and 1 - 2**-24 is the largest U.
    uniform = torch.rand(
        log_probs.shape, generator=generator, device=log_probs.device, dtype=log_probs.dtype
    )
    return (log_probs - uniform.log_().neg_().log_()).argmax(dim=-1)


def greedy(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """The likeliest legal action of each row, the first of equals. [N, n] to int64 [N]."""
    return mask_logits(logits, action_mask).argmax(dim=-1)
