"""Generalized advantage estimation along each agent's own decisions, and what followed each.

Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
(2016), https://arxiv.org/abs/1506.02438. A trajectory belongs to (environment, agent): its steps
are the decisions of that agent, whenever they come. T: calls of step, B: environments, P: agents.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What P agents decided and received in T calls of ``step``.

    Attributes:
        decided: A decision was asked for before call t. bool [T, B, P].
        trained: It is to be trained on; implies ``decided``. bool [T, B, P].
        value: Of trained decisions; undefined elsewhere. float32 [T, B, P].
        reward: Received in call t. float32 [T, B, P].
        ended: The agent's episode ended in call t, in any way. bool [T, B, P].
        end_value: What follows such an end: V(final observation) of a truncation, 0 otherwise.
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


def own_decision_advantages(
    decisions: Decisions, *, gamma: float, gae_lambda: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages, backwards over time and vectorised over everything else.

    Args:
        decisions: Of one rollout.
        gamma: Discount per own decision.
        gae_lambda: 0: one step, 1: all of them.

    Returns:
        Advantages float32 [T, B, P] and where they are defined, bool [T, B, P]: at trained
        decisions whose successor (the agent's next decision or its end) is known. The others'
        advantages are 0.
    """
    advantage = torch.zeros_like(decisions.value)
    defined = torch.zeros_like(decisions.trained)
    # What a decision before call t will see: the reward until its successor, the successor's value
    # and advantage, and whether there is a successor at all.
    reward = torch.zeros_like(decisions.next_value)
    next_value = decisions.next_value
    next_advantage = torch.zeros_like(reward)
    known = decisions.next_decided
    for t in reversed(range(len(decisions.value))):
        ended = decisions.ended[t]
        reward = decisions.reward[t] + reward.masked_fill(ended, 0.0)
        next_value = torch.where(ended, decisions.end_value[t], next_value)
        next_advantage = next_advantage.masked_fill(ended, 0.0)
        known = known | ended

        value, trained = decisions.value[t], decisions.trained[t]
        # delta = R + gamma V(next) - V;  A = delta + gamma lambda A(next)
        delta = reward + gamma * next_value - value
        defined[t] = trained & known
        advantage[t] = torch.where(defined[t], delta + gamma * gae_lambda * next_advantage, 0.0)

        # This decision is the successor of the one before; an untrained one has no value to offer.
        decided = decisions.decided[t]
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, value, next_value)
        next_advantage = torch.where(decided, advantage[t], next_advantage)
        known = torch.where(decided, trained, known)
    return advantage, defined


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What followed each decision; undefined where its successor is not known.

    Attributes:
        reward: Received until the agent's next decision or its end. float32 [T, B, P].
        next_value: Value of the next decision; of an end, what follows it. float32 [T, B, P].
        next_call: Before which call the next decision came; T: after the last one; -1: none, the
            episode ended. int64 [T, B, P].
    """

    reward: torch.Tensor
    next_value: torch.Tensor
    next_call: torch.Tensor


def what_followed(decisions: Decisions) -> Followed:
    """The rewards and successors that advantages are made of."""
    num_calls = len(decisions.value)
    followed = Followed(
        reward=torch.zeros_like(decisions.value),
        next_value=torch.zeros_like(decisions.value),
        next_call=torch.zeros_like(decisions.value, dtype=torch.int64),
    )
    reward = torch.zeros_like(decisions.next_value)
    next_value = decisions.next_value
    next_call = torch.full_like(reward, num_calls, dtype=torch.int64)
    for t in reversed(range(num_calls)):
        ended, decided = decisions.ended[t], decisions.decided[t]
        reward = decisions.reward[t] + reward.masked_fill(ended, 0.0)
        next_value = torch.where(ended, decisions.end_value[t], next_value)
        next_call = next_call.masked_fill(ended, -1)
        followed.reward[t], followed.next_value[t] = reward, next_value
        followed.next_call[t] = next_call
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, decisions.value[t], next_value)
        next_call = next_call.masked_fill(decided, t)
    return followed
