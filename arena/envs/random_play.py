"""Random legal play of a batch: what checks and comparisons of environments do."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.envs.base import Turn
from arena.envs.spec import EnvironmentSpec


def populations_of(spec: EnvironmentSpec) -> dict[str, tuple[str, ...]]:
    """Agents with equal specs, each group named by its first agent."""
    populations: dict[str, list[str]] = {}
    for agent in spec.agents:
        populations.setdefault(repr(spec.agent_specs[agent]), []).append(agent)
    return {agents[0]: tuple(agents) for agents in populations.values()}


def random_legal_actions(
    turn: Turn, *, num_actions: Mapping[str, int], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """One action for each decision, each legal one equally likely.

    Args:
        turn: That asks. Wherever it is.
        num_actions: By population.
        generator: The only source of randomness. On the CPU.

    Returns:
        By population, on the CPU. int64 [B, S].
    """
    actions = {}
    for name, group in turn.groups.items():
        draws = torch.rand((*group.agent_index.shape, num_actions[name]), generator=generator)
        if group.action_mask is not None:
            draws.masked_fill_(~group.action_mask.cpu(), -1.0)
        actions[name] = draws.argmax(dim=-1)
    return actions
