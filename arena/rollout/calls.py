"""How many calls of ``step`` a rollout has. Torch-free: the sizes of a run depend on it, too."""

from __future__ import annotations

import math


def rollout_calls(rollout_length: int, *, agents_in_turn: int) -> int:
    """Calls of ``step`` in a rollout.

    Where more than two agents take turns it has half their number as many, so that each decides as
    often as in a game of two: an agent's last decision is not trained on, and what it did is judged
    by few of its later decisions, if a rollout has few of them.

    Args:
        rollout_length: Wanted, of agents who decide at once, or two in turn.
        agents_in_turn: Of whom one decides at a time; 1: they decide at once.
    """
    return math.ceil(rollout_length * max(2, agents_in_turn) / 2)
