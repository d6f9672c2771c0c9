"""Tic-tac-toe on bitboards: the twin of PettingZoo's ``classic/tictactoe-v3``.

A player's marks are 9 bits, one per cell in the order of actions. There are so few sets of marks
that everything computed from one is looked up in tables. Shapes: B games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult, refuse_kwargs

NUM_CELLS = 9
NUM_SETS = 2**NUM_CELLS
FULL = NUM_SETS - 1
AGENTS = ("player_1", "player_2")

LINES = (
    (0, 1, 2),
    (3, 4, 5),
    (6, 7, 8),
    (0, 3, 6),
    (1, 4, 7),
    (2, 5, 8),
    (0, 4, 8),
    (2, 4, 6),
)

AGENT_SPEC = AgentSpec(
    observation={"kind": "Box", "shape": [3, 3, 2], "dtype": "int8", "low": 0, "high": 1},
    action={"kind": "Discrete", "n": NUM_CELLS, "start": 0},
    mask="observation",
)


class TicTacToe:
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
        sets = torch.arange(NUM_SETS, device=device)
        cells = torch.arange(NUM_CELLS, device=device)
        marked = (sets[:, None] >> cells) & 1
        lines = torch.tensor([sum(1 << cell for cell in line) for line in LINES], device=device)
        self._cell = 1 << cells
        # A set wins if it contains all cells of some line. [512, 1] & [8] -> [512]
        self._wins = ((sets[:, None] & lines) == lines).any(dim=1)
        self._free = marked == 0
        # An observation is [3, 3, 2]: for each cell, the agent's own mark and the other's.
        nothing = torch.zeros_like(marked)
        self._own = torch.stack((marked, nothing), dim=2).flatten(1).float()
        self._others = torch.stack((nothing, marked), dim=2).flatten(1).float()
        # The dtype is explicit, because users' code in this process may have changed the default.
        self._sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float32, device=device)
        # State of each game: the marks of the agent on turn, those of the other, the agent on
        # turn. [B]
        self._mine = torch.zeros(num_games, dtype=torch.int64, device=device)
        self._theirs = torch.zeros_like(self._mine)
        self._mover = torch.zeros_like(self._mine)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Empty some boards. There is no chance in this game."""
        self._mine = self._mine.masked_fill(games, 0)
        self._theirs = self._theirs.masked_fill(games, 0)
        self._mover = self._mover.masked_fill(games, 0)

    def decisions(self) -> tuple[Group]:
        """Return the decision of the agent on turn, which sees its own marks first."""
        observation = self._own.index_select(0, self._mine)
        # The two planes are disjoint, so their sum is the observation.
        observation += self._others.index_select(0, self._theirs)
        free = self._free.index_select(0, self._mine | self._theirs)
        return (Group(self._mover[:, None], observation[:, None], free[:, None]),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Set a mark in each game."""
        mine = self._mine | self._cell.index_select(0, actions[0][:, 0])
        won = self._wins.index_select(0, mine)
        over = won | ((mine | self._theirs) == FULL)
        reward = won[:, None] * self._sign.index_select(0, self._mover)
        # The agents swap roles, so that the one on turn is always `_mine`.
        self._mine, self._theirs = self._theirs, mine
        self._mover = 1 - self._mover
        return StepResult(reward=reward, terminated=over[:, None].expand(-1, 2))
