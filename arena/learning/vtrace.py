"""V-trace: advantages of decisions that were made by a policy which has changed since.

Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures" (ICML 2018), https://arxiv.org/abs/1802.01561, equation 1 and remark 2. Along each
agent's own decisions, as all advantages here. D: decisions of a rollout.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from arena.experience import Rollout, Transitions
from arena.learning import losses
from arena.learning.hyperparameters import PpoHyperparameters


def vtrace(
    transitions: Transitions,
    *,
    value: torch.Tensor,
    ratio: torch.Tensor,
    gamma: float,
    gae_lambda: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and targets of values, for the policy of now.

    Args:
        transitions: Of the rows.
        value: Of each decision, by the policy of now. float32 [D].
        ratio: Probability of the action now, by that when it was chosen. float32 [D].
        gamma: Discount per own decision.
        gae_lambda: Multiplies the weights that are passed on.
        rho_bar: Largest importance of a decision.
        c_bar: Largest importance that is passed on.

    Returns:
        Advantages float32 [D], which carry the importance of their decision, and targets
        float32 [D].
    """
    rho, passed_on = ratio.clamp(max=rho_bar), gae_lambda * ratio.clamp(max=c_bar)
    # delta_s = rho_s (r_s + gamma V(s+1) - V(s))
    delta = rho * (transitions.reward + gamma * transitions.next_of(value) - value)
    # v_s - V(s) = delta_s + gamma c_s (v_{s+1} - V(s+1))
    target = value + _accumulated(delta, gamma * passed_on, successor=transitions.successor)
    advantage = rho * (transitions.reward + gamma * transitions.next_of(target) - value)
    return advantage, target


def valued_anew(
    rollout: Rollout,
    *,
    value: torch.Tensor,
    log_prob: torch.Tensor,
    hyperparameters: PpoHyperparameters,
) -> Rollout:
    """A rollout as if the policy of now had looked at what another one played.

    Args:
        rollout: With transitions.
        value: Of each decision, by the policy of now. float32 [D].
        log_prob: Of each action, by the policy of now. float32 [D].
        hyperparameters: Of V-trace.

    Returns:
        Its advantages carry the importance, so the surrogate's ratio is to begin at 1: the
        log-probabilities are those of now.
    """
    if rollout.transitions is None:
        raise ValueError("V-trace needs a rollout that says what followed each decision")
    advantage, target = vtrace(
        rollout.transitions,
        value=value,
        ratio=losses.log_ratio(log_prob, rollout.log_prob).exp(),
        gamma=hyperparameters.gamma,
        gae_lambda=hyperparameters.gae_lambda,
        rho_bar=hyperparameters.rho_bar,
        c_bar=hyperparameters.c_bar,
    )
    return replace(rollout, log_prob=log_prob, value=value, advantage=advantage, return_=target)


def _accumulated(
    term: torch.Tensor, weight: torch.Tensor, *, successor: torch.Tensor
) -> torch.Tensor:
    """x_d = term_d + weight_d * x_{successor of d}, in as many rounds as the longest has bits.

    Each round composes the affine maps of twice as many decisions, for all rows at once.
    """
    nothing = term.new_zeros(1)
    total, factor = torch.cat([term, nothing]), torch.cat([weight, nothing])
    after = torch.cat([successor, successor.new_full((1,), -1)])
    after = torch.where(after < 0, len(term), after)  # the last row follows itself and adds 0
    while bool((after < len(term)).any()):
        total = total + factor * total[after]
        factor = factor * factor[after]
        after = after[after]
    return total[:-1]
