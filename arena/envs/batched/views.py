"""Views that populations have of the groups of a batched game.

Tests: `tests/arena/envs/batched/test_batch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.envs.batched.game import BatchedGame
from arena.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Population's view of the group of agents that it is part of.

    Attributes:
        name: Population's name.
        group: Index of its group.
        columns: Positions of its agents in the group; None if it is the whole group, in its order.
        members: Whether an agent is in the population; the last entry, for index -1, is False. bool
            [A + 1].
    """

    name: str
    group: int
    columns: torch.Tensor | None
    members: torch.Tensor


def view_of(game: BatchedGame, *, name: str, agents: tuple[str, ...], device: torch.device) -> View:
    """Return the view of a population.

    Raises:
        ConfigError: If its agents have different spaces.
    """
    groups = [at for at, group in enumerate(game.groups) if agents[0] in group]
    if not groups or not set(agents) <= set(game.groups[groups[0]]):
        raise ConfigError(
            f"populations.{name}.agents must have equal spaces, and these have not: "
            f"{', '.join(agents)}"
        )
    group = game.groups[groups[0]]
    members = torch.zeros(len(game.agents) + 1, dtype=torch.bool, device=device)
    members[[game.agents.index(agent) for agent in agents]] = True
    columns = torch.tensor([group.index(agent) for agent in agents], device=device)
    return View(
        name=name,
        group=groups[0],
        # None where the population is the group: its tensors pass without a copy.
        columns=None if agents == group else columns,
        members=members,
    )
