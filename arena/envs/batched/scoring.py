"""Scores of many episodes at once; `arena.envs.outcome` says what they mean.

Shapes: N episodes that have ended, A agents.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from arena.config import Outcome, ThresholdOutcome
from arena.envs.outcome import TOLERANCE, Sides, make_outcome, needs_infos
from arena.errors import ConfigError

BatchedScore = Callable[[torch.Tensor], torch.Tensor]
"""From undiscounted returns, float64 [N, A], to scores, float32 [N, sides]: in [0, 1], and in
cooperation what `arena.envs.outcome` says."""


def make_batched_score(
    outcome: Outcome,
    *,
    sides: Sides,
    agents: tuple[str, ...],
    launch_directory: str,
    device: torch.device,
) -> BatchedScore:
    """Make the function that scores episodes when they have ended.

    Raises:
        ConfigError: If the outcome or a side names what there is not, or the outcome looks at
            infos, which batched games do not have.
    """
    score = make_outcome(outcome, sides=sides, agents=agents, launch_directory=launch_directory)
    if len(sides) == 1 and outcome == "return":
        return lambda returns: torch.full((len(returns), 1), torch.nan, device=device)
    mean_of_agents = torch.zeros(len(agents), len(sides), dtype=torch.float64)
    for column, members in enumerate(sides.values()):
        for agent in members:
            mean_of_agents[agents.index(agent), column] = 1.0 / len(members)
    mean_of_agents = mean_of_agents.to(device)
    if outcome == "return":
        return lambda returns: _pairwise(returns @ mean_of_agents)
    if isinstance(outcome, ThresholdOutcome):
        column = list(sides).index(outcome.side)
        threshold = outcome.threshold
        wins_there = torch.tensor([float(side == outcome.side) for side in sides], device=device)

        def by_threshold(returns: torch.Tensor) -> torch.Tensor:
            reached = (returns @ mean_of_agents)[:, column, None] >= threshold
            return torch.where(reached, wins_there, 1.0 - wins_there)

        return by_threshold
    if needs_infos(outcome) and not isinstance(outcome, str):
        raise ConfigError(
            "environment.outcome: a batched game has no infos; use return, a threshold or a "
            "function of the returns, or backend: pettingzoo"
        )

    def by_function(returns: torch.Tensor) -> torch.Tensor:
        rows = [score(dict(zip(agents, row, strict=True)), {}) for row in returns.tolist()]
        return torch.tensor(rows, device=device).reshape(len(returns), len(sides))

    return by_function


def equal(mine: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Where two returns or scores are the same but for rounding. bool, of both broadcast."""
    mine, others = mine.double(), others.double()
    scale = torch.maximum(mine.abs(), others.abs()).clamp_(min=1.0)
    return (mine - others).abs() <= TOLERANCE * scale


def _pairwise(values: torch.Tensor) -> torch.Tensor:
    """Mean over the other sides of 1 (higher), 0.5 (equal) or 0 (lower). [N, sides]."""
    mine, others = values[:, :, None], values[:, None, :]
    beats = torch.where(equal(mine, others), 0.5, (mine > others).double())
    # Against itself a side scores one half, which does not count.
    return ((beats.sum(dim=2) - 0.5) / (values.shape[1] - 1)).float()
