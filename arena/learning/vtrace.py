"""V-trace: advantages of decisions that were made by a policy which has changed since.

Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures" (ICML 2018), https://arxiv.org/abs/1802.01561, equation 1 and remark 2. Along each
agent's own decisions, as all advantages here. D: decisions of a rollout.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from arena.experience import Rollout, Transitions
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.ppo_loss import clamped_log_ratio
from arena.learning.shapes import check_equal_shapes


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
    """Compute advantages and value targets for the current policy.

    Args:
        transitions: Successors of the decisions.
        value: Value of each decision under the current policy. float32 [D].
        ratio: Probability of each action now, divided by that when it was chosen. float32 [D].
        gamma: Discount per own decision.
        gae_lambda: Factor of the importance that is passed on.
        rho_bar: Largest importance of a decision.
        c_bar: Largest importance that is passed on to earlier decisions.

    Returns:
        Advantages float32 [D], which carry the importance of their decision, and targets
        float32 [D].

    Raises:
        ValueError: If the tensors do not have one number per decision each.
    """
    check_equal_shapes(
        1,
        value=value,
        ratio=ratio,
        reward=transitions.reward,
        successor=transitions.successor,
        next_value=transitions.next_value,
    )
    # rho_s = min(rho_bar, pi / mu), c_s = lambda min(c_bar, pi / mu)
    rho, passed_on = ratio.clamp(max=rho_bar), gae_lambda * ratio.clamp(max=c_bar)
    # delta_s = rho_s (r_s + gamma V(s+1) - V(s))
    delta = rho * (transitions.reward + gamma * transitions.next_of(value) - value)
    # v_s - V(s) = delta_s + gamma c_s (v_{s+1} - V(s+1))
    target = value + _accumulated(delta, gamma * passed_on, successor=transitions.successor)
    # A_s = rho_s (r_s + gamma v_{s+1} - V(s))
    advantage = rho * (transitions.reward + gamma * transitions.next_of(target) - value)
    return advantage, target


def with_vtrace_targets(
    rollout: Rollout,
    *,
    value: torch.Tensor,
    log_prob: torch.Tensor,
    hyperparameters: PpoHyperparameters,
) -> Rollout:
    """Replace values and log-probabilities by the current policy's, and advantages by V-trace's.

    Args:
        rollout: Rollout with transitions.
        value: Value of each decision under the current policy. float32 [D].
        log_prob: Log-probability of each action under the current policy. float32 [D].
        hyperparameters: Discount, lambda and bars.

    Returns:
        A rollout whose advantages carry the importance, so the surrogate's ratio is to begin at 1:
        its log-probabilities are the current ones.

    Raises:
        ValueError: If the rollout has no transitions, or the tensors do not fit it.
    """
    if rollout.transitions is None:
        raise ValueError("V-trace needs a rollout with the successor of each decision")
    advantage, target = vtrace(
        rollout.transitions,
        value=value,
        ratio=clamped_log_ratio(log_prob, rollout.log_prob).exp(),
        gamma=hyperparameters.gamma,
        gae_lambda=hyperparameters.gae_lambda,
        rho_bar=hyperparameters.rho_bar,
        c_bar=hyperparameters.c_bar,
    )
    return replace(rollout, log_prob=log_prob, value=value, advantage=advantage, return_=target)


def _accumulated(
    term: torch.Tensor, weight: torch.Tensor, *, successor: torch.Tensor
) -> torch.Tensor:
    """Solve x_d = term_d + weight_d * x_{successor of d}, in log2(longest chain) rounds.

    Each round composes the affine maps of twice as many decisions, for all rows at once.
    """
    # Row D stands for no successor: it is its own and contributes 0.
    nothing = term.new_zeros(1)
    total, factor = torch.cat([term, nothing]), torch.cat([weight, nothing])
    after = torch.cat([successor, successor.new_full((1,), -1)])
    after = torch.where(after < 0, len(term), after)  # the last row follows itself and adds 0
    while bool((after < len(term)).any()):
        # x_d = total_d + factor_d x_{after d}; putting in x_{after d} doubles the reach of after.
        total = total + factor * total[after]
        factor = factor * factor[after]
        after = after[after]
    return total[:-1]
