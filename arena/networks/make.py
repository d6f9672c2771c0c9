"""Builds networks from the configuration."""

from __future__ import annotations

import torch

from arena.config import NetworkConfig
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.actor_critic import ActorCritic


def make_actor_critic(
    network: NetworkConfig,
    *,
    observation: ObservationLayout,
    action: ActionLayout,
    seed: int,
    critic_input: ObservationLayout | None = None,
) -> ActorCritic:
    """A fresh network on the CPU: a function of its arguments that leaves global randomness alone.

    Args:
        network: The architecture. A user's own module is looked for on ``sys.path`` as it is.
        observation: What it sees.
        action: What it chooses from.
        seed: Decides the weights. Any integer; taken modulo 2**63.
        critic_input: What a centralized critic reads (`arena.envs.spaces.critic_input`). None:
            there is no such critic, or the network only plays, and has none of its weights.

    Raises:
        ConfigError: If the architecture does not fit the observation, or a user's module cannot be
            made.
    """
    generator = torch.Generator().manual_seed(seed % 2**63)
    return ActorCritic(
        network,
        observation=observation,
        action=action,
        generator=generator,
        critic_input=critic_input,
    )
