"""Construction of networks from the configuration.

Tests: `tests/arena/networks/test_actor_critic.py`.
"""

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
    """Make a fresh network on the CPU, without touching global randomness.

    Args:
        network: Architecture. A user's module is searched for on ``sys.path`` as it is.
        observation: Layout of the observations.
        action: Layout of the actions.
        seed: Seed of the weights. Any integer; taken modulo 2**63.
        critic_input: Layout of a centralized critic's input (`arena.envs.spaces.critic_input`).
            None: there is no such critic, or the network only plays and has none of its weights.

    Raises:
        ConfigError: If the architecture does not fit the observation, or a user's module cannot be
            made.
    """
    # A generator of its own: weights depend on the seed alone, and global draws on none of this.
    generator = torch.Generator().manual_seed(seed % 2**63)
    return ActorCritic(
        network,
        observation=observation,
        action=action,
        generator=generator,
        critic_input=critic_input,
    )
