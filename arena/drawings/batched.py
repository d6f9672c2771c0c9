"""One batched game as a stepper.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.game import BatchedGameClass
from arena.envs.pettingzoo.episode import EpisodeRow


class BatchedStepper:
    """A `Stepper` of a batch of one game, each agent being a population of its own.

    Args:
        game_class: Game's class.
        spec: Environment's spec.
        row: Row that is paid.

    Raises:
        ConfigError: If the game refuses the kwargs.

    Attributes:
        game: The batched game.
    """

    on_turn = "in a batched game"

    def __init__(
        self, game_class: BatchedGameClass, spec: EnvironmentSpec, row: EpisodeRow
    ) -> None:
        self.game = game_class(1, device=torch.device("cpu"), **spec.kwargs)
        self._row = row
        self._gone = torch.zeros(1, len(self.game.agents), dtype=torch.bool)

    def start(self, seed: int) -> None:
        """Begin the episode."""
        self.game.reset(torch.ones(1, dtype=torch.bool), key=torch.tensor([seed]))

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Carry out the decisions; True if the game is over."""
        agents = self.game.agents
        chosen = [
            # The game is promised zeros where no decision is pending.
            torch.tensor([[actions[agents[a]][0] if a >= 0 else 0 for a in row.tolist()]])
            for group in self.game.decisions()
            for row in group.agent_index
        ]
        result = self.game.step(chosen)
        self._row.credit(dict(zip(agents, result.reward[0].tolist(), strict=True)))
        self._gone |= result.terminated
        if result.truncated is not None:
            self._gone |= result.truncated
        return bool(self._gone.all())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
