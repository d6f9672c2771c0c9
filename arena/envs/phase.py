"""Phase of an environment's episodes and the players in them, as it is told them beforehand.

Tests: `tests/arena/envs/test_phase.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch

from arena.envs.base import BatchedEnv
from arena.types import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Phase of the episodes of one environment, as its ``set_phase`` is told it.

    Attributes:
        name: ``training`` or ``evaluation``.
        agent_steps: Agent steps of the trainee at the start of its assignment; of several trainees
            those of the first. None in evaluation, where nobody learns.
        players: Player of each agent.
    """

    name: Literal["training", "evaluation"]
    agent_steps: int | None
    players: Mapping[str, str]


@runtime_checkable
class Told(Protocol):
    """`BatchedEnv` that passes phases on to its environments."""

    def tell(self, phases: Sequence[Phase]) -> None:
        """Take the phase of each environment's episodes from the next one on. Length B."""
        ...


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
            # In cooperation home and away have the same agents; home plays while training.
            found.setdefault(agent, player)
    return found
