"""Advantages along each agent's own decisions: generalized ones, and those of V-trace.

Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
(2016), https://arxiv.org/abs/1506.02438. For decisions of a policy that has changed since: Espeholt
et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures"
(ICML 2018), https://arxiv.org/abs/1802.01561, equation 1 and remark 2.

A trajectory belongs to (environment, agent): its steps are the decisions of that agent, whenever
they come. T: calls of step, B: environments, P: agents, D: decisions of a rollout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from arena.experience import Rollout, Transitions
from arena.learning.hyperparameters import PpoHyperparameters

MAX_LOG_RATIO = 20.0
"""exp(20) is far outside of any clip range, and its square still a float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Decisions and rewards of P agents in T calls of ``step``.

    Attributes:
        decided: A decision was asked for before call t. bool [T, B, P].
        trained: It is to be trained on; implies ``decided``. bool [T, B, P].
        value: Values of trained decisions; undefined elsewhere. float32 [T, B, P].
        reward: Rewards received in call t. float32 [T, B, P].
        ended: The agent's episode ended in call t, in any way. bool [T, B, P].
        end_value: Value after such an end: V(final observation) of a truncation, 0 otherwise.
            float32 [T, B, P].
        next_decided: The agent is on turn after the last call. bool [B, P].
        next_value: Value of that decision. float32 [B, P].
    """

    decided: torch.Tensor
    trained: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    ended: torch.Tensor
    end_value: torch.Tensor
    next_decided: torch.Tensor
    next_value: torch.Tensor

    def check_shapes(self) -> None:
        """Check ranks and shapes.

        Raises:
            ValueError: If a tensor is not as the attributes say.
        """
        check_equal_shapes(
            3,
            decided=self.decided,
            trained=self.trained,
            value=self.value,
            reward=self.reward,
            ended=self.ended,
            end_value=self.end_value,
        )
        check_equal_shapes(
            2,
            each_call=self.value[0],
            next_decided=self.next_decided,
            next_value=self.next_value,
        )


def generalized_advantages(
    decisions: Decisions, *, gamma: float, gae_lambda: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute advantages, backwards over time and vectorised over everything else.

    Args:
        decisions: Decisions of one rollout.
        gamma: Discount per own decision.
        gae_lambda: 0: one step, 1: all of them.

    Returns:
        Advantages float32 [T, B, P] and where they are defined, bool [T, B, P]: at trained
        decisions whose successor (the agent's next decision or its end) is known. The others'
        advantages are 0.

    Raises:
        ValueError: If the decisions' shapes do not fit each other.
    """
    decisions.check_shapes()
    advantage = torch.zeros_like(decisions.value)
    defined = torch.zeros_like(decisions.trained)
    # Each variable has the value at a decision before call t: the reward until its successor, the
    # successor's value and advantage, and whether a successor is known.
    reward = torch.zeros_like(decisions.next_value)
    next_value = decisions.next_value
    next_advantage = torch.zeros_like(reward)
    # At the rollout's end only agents on turn have a known successor.
    known = decisions.next_decided
    for t in reversed(range(len(decisions.value))):
        ended = decisions.ended[t]
        # R_t = r_t + R_{t+1}; at an end R_{t+1} = A_{t+1} = 0, and V_{t+1} is the end's value.
        reward = decisions.reward[t] + reward.masked_fill(ended, 0.0)
        next_value = torch.where(ended, decisions.end_value[t], next_value)
        next_advantage = next_advantage.masked_fill(ended, 0.0)
        known = known | ended

        value, trained = decisions.value[t], decisions.trained[t]
        # delta = R + gamma V(next) - V;  A = delta + gamma lambda A(next)
        delta = reward + gamma * next_value - value
        defined[t] = trained & known
        advantage[t] = torch.where(defined[t], delta + gamma * gae_lambda * next_advantage, 0.0)

        # This decision is the successor of the previous one; an untrained decision has no value.
        decided = decisions.decided[t]
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, value, next_value)
        next_advantage = torch.where(decided, advantage[t], next_advantage)
        known = torch.where(decided, trained, known)
    return advantage, defined


def successors(decisions: Decisions) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the rewards and successors that advantages are made of, [T, B, P] each; undefined
    where the successor is not known.

    Returns:
        Reward until the agent's next decision or its end, float32; value of the next decision, or
        after the end, float32; call before which the next decision came, int64 (T: after the last
        one; -1: none, the episode ended).

    Raises:
        ValueError: If the decisions' shapes do not fit each other.
    """
    decisions.check_shapes()
    num_calls = len(decisions.value)
    # The loop is that of `generalized_advantages`, without the advantages.
    rewards, next_values = torch.zeros_like(decisions.value), torch.zeros_like(decisions.value)
    next_calls = torch.zeros_like(decisions.value, dtype=torch.int64)
    reward = torch.zeros_like(decisions.next_value)
    next_value = decisions.next_value
    next_call = torch.full_like(reward, num_calls, dtype=torch.int64)
    for t in reversed(range(num_calls)):
        ended, decided = decisions.ended[t], decisions.decided[t]
        reward = decisions.reward[t] + reward.masked_fill(ended, 0.0)
        next_value = torch.where(ended, decisions.end_value[t], next_value)
        next_call = next_call.masked_fill(ended, -1)
        rewards[t], next_values[t], next_calls[t] = reward, next_value, next_call
        # This decision is the successor of the previous one.
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, decisions.value[t], next_value)
        next_call = next_call.masked_fill(decided, t)
    return rewards, next_values, next_calls


def check_equal_shapes(rank: int, **tensors: torch.Tensor) -> None:
    """Check that all tensors have one shape, of a given rank.

    An [M] and an [M, 1] would silently broadcast to [M, M].

    Args:
        rank: Number of their dimensions.
        **tensors: Tensors by the names in the message.

    Raises:
        ValueError: If they do not. States every shape.
    """
    shapes = [tensor.shape for tensor in tensors.values()]
    if len(shapes[0]) != rank or shapes.count(shapes[0]) != len(shapes):
        found = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        what = "a shape" if len(shapes) == 1 else "one shape"
        raise ValueError(f"tensors must have {what} of {rank} dimensions, got {found}")


def clamped_log_ratio(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Return the log of the probability ratio, its exponential kept from overflowing. [M]."""
    check_equal_shapes(1, log_prob=log_prob, old_log_prob=old_log_prob)
    # log r = log pi(a) - log pi_old(a)
    return (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


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
    # Row D stands for a missing successor: it follows itself and contributes 0.
    nothing = term.new_zeros(1)
    total, factor = torch.cat([term, nothing]), torch.cat([weight, nothing])
    after = torch.cat([successor, successor.new_full((1,), -1)])
    after = torch.where(after < 0, len(term), after)  # The last row follows itself and adds 0.
    while bool((after < len(term)).any()):
        # x_d = total_d + factor_d x_{after d}; substituting x_{after d} doubles the reach of
        # after.
        total = total + factor * total[after]
        factor = factor * factor[after]
        after = after[after]
    return total[:-1]
