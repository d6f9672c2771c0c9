"""Race of two collectors for coins on a grid: a batched game of skill and luck to test ratings on.

Its ``environment.id`` is ``tests.assets.coins:Coins``.

Tests: `tests/arena/envs/batched/test_coins.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult
from arena.envs.chance import first_uniforms

AGENTS = ("collector_0", "collector_1")
SIZE, NUM_COINS, NUM_STEPS = 7, 2, 14
CELLS = SIZE * SIZE
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
THINGS = len(AGENTS) + NUM_COINS


class Coins:
    """A `arena.envs.batched.game.BatchedGame` on a torus of 7 x 7 cells.

    Both move at once. Who arrives alone at a coin gets 1 and the other one -1; a coin that somebody
    arrives at comes back in a random cell.

    Args:
        num_games: B.
        device: Device of all tensors.
    """

    api: Literal["parallel"] = "parallel"
    agents = AGENTS
    groups = (AGENTS,)

    def __init__(self, num_games: int, *, device: torch.device) -> None:
        box = {"kind": "Box", "shape": [2 * CELLS + 1], "dtype": "float32", "low": 0.0, "high": 1.0}
        action = {"kind": "Discrete", "n": len(MOVES), "start": 0}
        self.agent_specs = dict.fromkeys(
            AGENTS, AgentSpec(observation=box, action=action, mask=None)
        )
        self._moves = torch.tensor(MOVES, device=device)
        self._both = torch.arange(len(AGENTS), device=device).expand(num_games, -1)
        # Places of the collectors, then of the coins, as row and column. [B, THINGS, 2]
        self._places = torch.zeros((num_games, THINGS, 2), dtype=torch.int64, device=device)
        self._time = torch.zeros(num_games, dtype=torch.int64, device=device)
        # Random cells of an episode: those of everything at first, then of the coins that come back
        # in each step. [B, draws, 2]
        num_draws = THINGS + NUM_STEPS * NUM_COINS
        self._cells = self._places.new_zeros((num_games, num_draws, 2))

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Put everything of some games into random cells."""
        cell = (first_uniforms(key, num_draws=self._cells.shape[1]) * CELLS).long()
        drawn = torch.stack((cell // SIZE, cell % SIZE), dim=2)
        self._cells = torch.where(games[:, None, None], drawn, self._cells)
        self._time = self._time.masked_fill(games, 0)
        self._places = torch.where(games[:, None, None], self._cells[:, :THINGS], self._places)

    def decisions(self) -> tuple[Group]:
        """Return what both see: planes of coins and of the other one around themselves, and the
        time.
        """
        coins = self._places[:, None, len(AGENTS) :]
        collectors = self._places[:, : len(AGENTS)]
        seen = torch.zeros((len(self._time), len(AGENTS), 2 * CELLS + 1), device=coins.device)
        seen.scatter_(2, self._index(coins - collectors[:, :, None]), 1.0)
        seen.scatter_(2, CELLS + self._index(collectors.flip(1) - collectors)[:, :, None], 1.0)
        seen[:, :, -1] = self._time[:, None] / NUM_STEPS
        return (Group(self._both, seen, None),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Move both, and give coins to who arrives alone."""
        self._places[:, : len(AGENTS)] += self._moves[actions[0]]
        self._places %= SIZE
        collectors, coins = self._places[:, : len(AGENTS)], self._places[:, len(AGENTS) :]
        arrived = (coins[:, :, None] == collectors[:, None]).all(dim=3)
        lead = (arrived[:, :, 0].long() - arrived[:, :, 1].long()).sum(dim=1).float()
        draws = THINGS + self._time[:, None] * NUM_COINS + torch.arange(NUM_COINS).to(self._time)
        drawn = self._cells.take_along_dim(draws[:, :, None], dim=1)
        self._places[:, len(AGENTS) :] = torch.where(arrived.any(dim=2)[:, :, None], drawn, coins)
        self._time = self._time + 1
        over = (self._time == NUM_STEPS)[:, None].expand(-1, len(AGENTS))
        return StepResult(reward=torch.stack((lead, -lead), dim=1), terminated=over)

    @staticmethod
    def _index(apart: torch.Tensor) -> torch.Tensor:
        """Return the place in a plane of a displacement. int64 [...]."""
        cell = apart % SIZE
        return cell[..., 0] * SIZE + cell[..., 1]
