"""Builds networks from the configuration."""

from __future__ import annotations

import torch

from arena.config import NetworkConfig
from arena.networks.actor_critic import ActorCritic


def make_actor_critic(
    network: NetworkConfig, *, observation_size: int, num_actions: int, seed: int
) -> ActorCritic:
    """A fresh network on the CPU: a function of its arguments that leaves global randomness alone.

    Args:
        network: The architecture.
        observation_size: F, the features of a flattened observation.
        num_actions: n.
        seed: Decides the weights. Any integer; taken modulo 2**63.
    """
    return ActorCritic(
        observation_size=observation_size,
        num_actions=num_actions,
        hidden_sizes=network.hidden_sizes,
        normalize_observations=network.normalize_observations,
        generator=torch.Generator().manual_seed(seed % 2**63),
    )
