"""Passing of the phase and the players to environments before their episodes.

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
    """Pass environments the phase of their next episodes, if they take phases.

    Args:
        env: Environments, stepped as one.
        phases: Phase of each block of environments.
        block_of_env: Block of each environment. int64 [B].
    """
    # A batched game contains no users' environments, so it takes no phases.
    if isinstance(env, Told):
        env.tell([phases[block] for block in block_of_env.tolist()])


def players_of_agents(seats: Sequence[Seat], players: Sequence[str]) -> dict[str, str]:
    """Return the player of each agent, from one player per seat."""
    found: dict[str, str] = {}
    for seat, player in zip(seats, players, strict=True):
        for agent in seat.agents:
            # In cooperation home and away have the same agents, and home plays in training.
            found.setdefault(agent, player)
    return found
