"""Calls of ``step`` in a rollout. Torch-free: the sizes of a run depend on it, too."""

from __future__ import annotations

import math


def rollout_calls(rollout_length: int, *, agents_in_turn: int) -> int:
    """Return the calls of ``step`` in a rollout.

    Where N > 2 agents take turns there are N / 2 times as many, so that each agent decides as often
    as in a game of two.

    Args:
        rollout_length: Length wanted for agents who decide at once, or two in turn.
        agents_in_turn: Number of agents who take turns; 1: they decide at once.
    """
    # An agent's last decision is not trained on, and few later decisions make advantages noisy. T
    # N / 2 calls give each of N agents T / 2 decisions, as T calls give each of two.
    return math.ceil(rollout_length * max(2, agents_in_turn) / 2)
