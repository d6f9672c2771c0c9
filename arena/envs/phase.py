"""Phase of an environment's episodes and the players in them, as it is told them beforehand.

Tests: `tests/arena/envs/test_phase.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arena.envs.base import BatchedEnv, Phase, Told
from arena.types import Seat


def tell_environments(
    env: BatchedEnv, phases: Sequence[Phase], *, block_of_env: torch.Tensor
) -> None:
    """Tell environments the phase of their next episodes, if any of them wants to know.

    Args:
        env: Environments, stepped as one.
        phases: Phase of each block of environments.
        block_of_env: Block of each environment. int64 [B].
    """
    # A batched game has no environments of users in it.
    if isinstance(env, Told):
        env.tell([phases[block] for block in block_of_env.tolist()])


def players_of_agents(seats: Sequence[Seat], players: Sequence[str]) -> dict[str, str]:
    """Return the player of each agent, from one player per seat."""
    found: dict[str, str] = {}
    for seat, player in zip(seats, players, strict=True):
        for agent in seat.agents:
            # Home and away have the same agents in cooperation; home plays while training.
            found.setdefault(agent, player)
    return found
