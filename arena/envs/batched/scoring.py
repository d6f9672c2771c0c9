"""Scores of many episodes at once; `arena.envs.outcome` defines them.

Shapes: N episodes that have ended, A agents.

Tests: `tests/arena/envs/batched/test_batch.py`, `tests/arena/envs/test_outcome.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from arena.config import MarginOutcome, Outcome, ThresholdOutcome
from arena.envs.outcome import TOLERANCE, Sides, make_outcome, margin_scale, needs_infos
from arena.errors import ConfigError

MAX_COMPARED = 1 << 20
"""Pairs of sides that are compared at once."""

BatchedScore = Callable[[torch.Tensor], torch.Tensor]
"""Function from undiscounted returns, float64 [N, A], to the scores of `arena.envs.outcome.Score`,
float32 [N, sides].
"""


def make_batched_score(
    outcome: Outcome,
    *,
    sides: Sides,
    agents: tuple[str, ...],
    launch_directory: str,
    device: torch.device,
) -> BatchedScore:
    """Make the function that scores finished episodes.

    Raises:
        ConfigError: If the outcome or a side names an unknown agent, or the outcome reads infos,
            which batched games do not have.
    """
    # `make_outcome` comes first, because it checks sides and outcome; its result is used only for
    # a user's function.
    score = make_outcome(outcome, sides=sides, agents=agents, launch_directory=launch_directory)
    if len(sides) == 1 and outcome == "return":
        return lambda returns: torch.full(
            (len(returns), 1), torch.nan, dtype=torch.float32, device=device
        )
    # u = returns @ M with M_as = 1 / |side s| for its agents: [N, A] -> [N, sides]
    mean_of_agents = torch.zeros(len(agents), len(sides), dtype=torch.float64)
    for column, members in enumerate(sides.values()):
        for agent in members:
            mean_of_agents[agents.index(agent), column] = 1.0 / len(members)
    mean_of_agents = mean_of_agents.to(device)
    if outcome == "return":
        return lambda returns: sides_beaten(returns @ mean_of_agents).float()
    if isinstance(outcome, MarginOutcome):
        scale = margin_scale(outcome)
        return lambda returns: _ahead_of_mean(returns @ mean_of_agents, scale=scale)
    if isinstance(outcome, ThresholdOutcome):
        column = list(sides).index(outcome.side)
        threshold = outcome.threshold
        # The dtype is explicit, because users' code in this process may have changed the default.
        wins_there = torch.tensor(
            [float(side == outcome.side) for side in sides], dtype=torch.float32, device=device
        )

        def by_threshold(returns: torch.Tensor) -> torch.Tensor:
            # [N, 1] against [sides] gives one winner of two sides.
            reached = (returns @ mean_of_agents)[:, column, None] >= threshold
            return torch.where(reached, wins_there, 1.0 - wins_there)

        return by_threshold
    if needs_infos(outcome) and not isinstance(outcome, str):
        raise ConfigError(
            "environment.outcome: a batched game has no infos; use return, a threshold or a "
            "function of the returns, or backend: pettingzoo"
        )

    def by_function(returns: torch.Tensor) -> torch.Tensor:
        # A user's function scores a single episode, so episodes are scored one by one.
        rows = [score(dict(zip(agents, row, strict=True)), {}) for row in returns.tolist()]
        scores = torch.tensor(rows, dtype=torch.float32, device=device)
        return scores.reshape(len(returns), len(sides))

    return by_function


def equal(mine: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return where two returns or scores are equal up to rounding. bool, of both broadcast."""
    mine, others = mine.double(), others.double()
    # |u - v| <= TOLERANCE max(|u|, |v|, 1), as in `arena.envs.outcome`
    scale = torch.maximum(mine.abs(), others.abs()).clamp_(min=1.0)
    return (mine - others).abs() <= TOLERANCE * scale


def score_against(mine: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Score sides against others by the points of both: 1/2 + (mine - others) / 2, within [0, 1].

    Args:
        mine: Points of a side in each match, as in ``Turn.score``. [N].
        others: Points of another side in each match. [N].

    Returns:
        Scores, exactly 1/2 where both are equal up to rounding. float64 [N].
    """
    ahead = 0.5 + 0.5 * (mine.double() - others.double())
    return torch.where(equal(mine, others), 0.5, ahead.clamp_(0.0, 1.0))


def sides_beaten(values: torch.Tensor) -> torch.Tensor:
    """Count the other sides with a lower value, equal ones half. float64 [N, sides]."""
    num_sides = values.shape[1]
    most = max(MAX_COMPARED // num_sides**2, 1)
    if len(values) > most:
        # The batch is split, because hundreds of sides in hundreds of matches would take
        # gigabytes.
        return torch.cat([sides_beaten(part) for part in torch.split(values, most)])
    # [N, sides, 1] against [N, 1, sides]
    mine, others = values[:, :, None], values[:, None, :]
    beats = torch.where(equal(mine, others), 0.5, (mine > others).double())
    # A side scores one half against itself, which is subtracted.
    return beats.sum(dim=2) - 0.5


def _ahead_of_mean(values: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Compute 1/2 + (value - mean of all sides) / (2 scale). float32 [N, sides]."""
    return (0.5 + (values - values.mean(dim=1, keepdim=True)) / (2.0 * scale)).float()
