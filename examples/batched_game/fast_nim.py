"""Nim as a batched game: B games of `own_game/nim.py` in a few operations of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult

AGENTS = ("player_0", "player_1")
MOST = 3


class FastNim:
    """A `arena.envs.batched.game.BatchedGame`.

    Args:
        num_games: B.
        device: Device of all tensors.
        num_sticks: Sticks in the heap at first.
    """

    api: Literal["aec"] = "aec"
    agents = AGENTS
    groups = (AGENTS,)

    def __init__(self, num_games: int, *, device: torch.device, num_sticks: int = 12) -> None:
        spec = AgentSpec(
            observation={
                "kind": "Box",
                "shape": [num_sticks + 1],
                "dtype": "float32",
                "low": 0.0,
                "high": 1.0,
            },
            action={"kind": "Discrete", "n": MOST, "start": 0},
            mask="observation",
        )
        self.agent_specs = dict.fromkeys(AGENTS, spec)
        self._num_sticks = num_sticks
        self._heap = torch.eye(num_sticks + 1, device=device)
        self._takes = torch.arange(1, MOST + 1, device=device)
        self._sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], device=device)
        # Remaining sticks, and index of the agent on turn. [B]
        self._left = torch.full((num_games,), num_sticks, device=device)
        self._mover = torch.zeros_like(self._left)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Fill the heaps of some games, and only of these. There is no chance in this game."""
        self._left = self._left.masked_fill(games, self._num_sticks)
        self._mover = self._mover.masked_fill(games, 0)

    def decisions(self) -> tuple[Group]:
        """Return the decision of the agent on turn in each game."""
        mask = self._takes <= self._left[:, None]
        seen = self._heap.index_select(0, self._left)
        return (Group(self._mover[:, None], seen[:, None], mask[:, None]),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Take sticks in every game."""
        self._left = self._left - (actions[0][:, 0] + 1)
        over = self._left == 0
        reward = over[:, None] * self._sign.index_select(0, self._mover)
        self._mover = 1 - self._mover
        return StepResult(reward=reward, terminated=over[:, None].expand(-1, 2))
