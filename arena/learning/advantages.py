"""Generalized advantage estimation along each agent's own decisions, and their successors.

Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
(2016), https://arxiv.org/abs/1506.02438. A trajectory belongs to (environment, agent): its steps
are the decisions of that agent, whenever they come. T: calls of step, B: environments, P: agents.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.learning.shapes import check_equal_shapes


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
    # As a decision before call t sees it: the reward until its successor, the successor's value
    # and advantage, and whether there is a successor at all.
    reward = torch.zeros_like(decisions.next_value)
    next_value = decisions.next_value
    next_advantage = torch.zeros_like(reward)
    # At the rollout's end only agents on turn have a successor that is known.
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

        # This decision is the successor of the one before; an untrained one has no value to offer.
        decided = decisions.decided[t]
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, value, next_value)
        next_advantage = torch.where(decided, advantage[t], next_advantage)
        known = torch.where(decided, trained, known)
    return advantage, defined


@dataclass(frozen=True, slots=True, kw_only=True)
class Successors:
    """The successor of each decision; undefined where it is not known.

    Attributes:
        reward: Reward until the agent's next decision or its end. float32 [T, B, P].
        next_value: Value of the next decision, or after the end. float32 [T, B, P].
        next_call: Call before which the next decision came; T: after the last one; -1: none, the
            episode ended. int64 [T, B, P].
    """

    reward: torch.Tensor
    next_value: torch.Tensor
    next_call: torch.Tensor


def successors(decisions: Decisions) -> Successors:
    """Return the rewards and successors that advantages are made of.

    Raises:
        ValueError: If the decisions' shapes do not fit each other.
    """
    decisions.check_shapes()
    num_calls = len(decisions.value)
    # The same pass as above, without the advantages.
    found = Successors(
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
        found.reward[t], found.next_value[t] = reward, next_value
        found.next_call[t] = next_call
        # This decision is the successor of the one before.
        reward = reward.masked_fill(decided, 0.0)
        next_value = torch.where(decided, decisions.value[t], next_value)
        next_call = next_call.masked_fill(decided, t)
    return found
