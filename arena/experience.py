"""The data that an algorithm learns from: the decisions of one rollout and their successors.

Shapes: D decisions, F features of a flattened observation, n actions, K numbers of an action, Q
sequences of at most L decisions, H numbers of a recurrent state, G of a critic's input.

Tests: `tests/arena/rollout/test_buffer.py`, `tests/arena/learning/test_advantages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """The successor of each of D decisions, for algorithms that recompute values.

    Attributes:
        reward: Reward until the agent's next decision or its end. float32 [D].
        successor: Row of the agent's next decision; -1: the episode ended, or the decision is not
            among the rows. int64 [D].
        next_value: Value of the successor when it was collected, in units of reward; 0 after a
            termination. float32 [D].
    """

    reward: torch.Tensor
    successor: torch.Tensor
    next_value: torch.Tensor

    def next_of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the successors' values: from ``values`` within the rows, else as collected."""
        # Index -1 reads row 0 and is replaced by the value as collected.
        inside = self.successor >= 0
        return torch.where(inside, values[self.successor.clamp(min=0)], self.next_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """All decisions of a rollout, each in one sequence that a recurrent network unrolls.

    Attributes:
        rows: Decisions of each sequence in order, -1 after its last one. int64 [Q, L].
        state: Recurrent state before the first decision of each sequence. float32 [Q, H].
    """

    rows: torch.Tensor
    state: torch.Tensor

    def __len__(self) -> int:
        """Return the number Q of sequences."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The decisions of one policy, in the order of time, environment, slot.

    The tensors are the receiver's own.

    Attributes:
        observation: float32 or uint8 [D, F].
        action_mask: True for legal actions. bool [D, n], or None without masks.
        action: int64 [D] or float32 [D, K].
        log_prob: Log-probability of the action when it was chosen. float32 [D].
        value: Prediction when the action was chosen, in units of reward. float32 [D].
        advantage: float32 [D].
        return_: Target of the value, advantage + value. float32 [D].
        agent_steps: Decisions of this policy in the rollout, without those of void episodes. At
            least D: an agent's last decision is left out where its successor is not known yet.
        num_decisions: All decisions of the population's agents in the rollout, of other players
            and void episodes too. At least ``agent_steps``; 0: not known.
        transitions: Successor of each decision, for an algorithm that needs it.
        sequences: Order of the decisions, for a recurrent policy.
        critic_input: Input of a centralized critic; None: values are computed from the observation.
            float32 or uint8 [D, G].
    """

    observation: torch.Tensor
    action_mask: torch.Tensor | None
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    return_: torch.Tensor
    agent_steps: int
    num_decisions: int = 0
    transitions: Transitions | None = None
    sequences: Sequences | None = None
    critic_input: torch.Tensor | None = None

    def __len__(self) -> int:
        """Return the number D of decisions."""
        return len(self.action)
