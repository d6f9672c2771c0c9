"""Connect Four on bitboards: the twin of PettingZoo's ``classic/connect_four-v3``.

A board is 7 columns of 7 bits: 6 cells from the bottom up and one that stays empty, so that lines
cannot continue past a column's end. Bit 7 * column + height. Shapes: B games.

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult, refuse_kwargs

NUM_COLUMNS, NUM_ROWS = 7, 6
AGENTS = ("player_0", "player_1")

LINES = (1, 7, 6, 8)
"""Distance of neighbours in a line: vertical, horizontal, and the two diagonals."""

FULL = sum(1 << (7 * column + row) for column in range(NUM_COLUMNS) for row in range(NUM_ROWS))

AGENT_SPEC = AgentSpec(
    observation={
        "kind": "Box",
        "shape": [NUM_ROWS, NUM_COLUMNS, 2],
        "dtype": "int8",
        "low": 0,
        "high": 1,
    },
    action={"kind": "Discrete", "n": NUM_COLUMNS, "start": 0},
    mask="observation",
)


class ConnectFour:
    """A `BatchedGame`: two agents in turn, +1 and -1 at the end, 0 for a full board."""

    api: Literal["aec"] = "aec"
    agents = AGENTS
    groups = (AGENTS,)
    agent_specs: Mapping[str, AgentSpec] = dict.fromkeys(AGENTS, AGENT_SPEC)

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: object) -> None:
        """Prepare B games.

        Args:
            num_games: B.
            device: Device of all tensors.
            kwargs: None; the original's options concern only rendering.

        Raises:
            ConfigError: If there are any.
        """
        refuse_kwargs(type(self).__name__, kwargs)

        def constant(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self._bottom = constant([1 << 7 * column for column in range(NUM_COLUMNS)])
        self._top = constant([7 * column + NUM_ROWS - 1 for column in range(NUM_COLUMNS)])
        # PettingZoo numbers rows from the top down.
        cells = [
            7 * column + NUM_ROWS - 1 - row
            for row in range(NUM_ROWS)
            for column in range(NUM_COLUMNS)
        ]
        self._cells = constant(cells)[:, None]
        self._lines = constant(LINES)[:, None]
        # The stones of the agent on turn, and those of the other. [B, 2]
        self._stones = torch.zeros(num_games, 2, dtype=torch.int64, device=device)
        self._mover = torch.zeros(num_games, 1, dtype=torch.int64, device=device)
        self._bits = torch.zeros(
            num_games, NUM_ROWS * NUM_COLUMNS, 2, dtype=torch.int64, device=device
        )
        # The dtype is explicit here and below, because users' code may have changed the default.
        self._observation = torch.zeros(
            num_games, 1, 2 * NUM_ROWS * NUM_COLUMNS, dtype=torch.float32, device=device
        )
        self._sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float32, device=device)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Empty some boards. There is no chance in this game."""
        self._stones = self._stones.masked_fill(games[:, None], 0)
        self._mover = self._mover.masked_fill(games[:, None], 0)

    def decisions(self) -> tuple[Group]:
        """Return the decision of the agent on turn, which sees its own stones first."""
        # The shift reads the bit of each cell, for both players at once.
        torch.bitwise_right_shift(self._stones[:, None, :], self._cells, out=self._bits)
        self._bits &= 1
        self._observation.view(self._bits.shape).copy_(self._bits)
        occupied = self._stones[:, :1] | self._stones[:, 1:]
        # A column has room if its top cell is empty.
        mask = ((occupied >> self._top) & 1) == 0
        return (Group(self._mover, self._observation, mask[:, None, :]),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Drop a stone in each game."""
        mine, theirs = self._stones.unbind(dim=1)
        occupied = mine | theirs
        # Adding a column's lowest bit carries through its stones to the lowest empty cell.
        mine = mine | ((occupied + self._bottom[actions[0][:, 0]]) & ~occupied)
        # Four in a line are pairs of neighbours, combined with equal pairs two cells apart.
        pairs = mine & (mine >> self._lines)
        won = ((pairs & (pairs >> 2 * self._lines)) != 0).any(dim=0)
        over = won | ((mine | theirs) == FULL)
        reward = won[:, None] * self._sign[self._mover[:, 0]]
        # The boards swap roles, so that the agent on turn is always first.
        self._stones = torch.stack((theirs, mine), dim=1)
        self._mover = 1 - self._mover
        return StepResult(reward=reward, terminated=over[:, None].expand(-1, 2))
