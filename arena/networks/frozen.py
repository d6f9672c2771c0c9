"""A policy that plays and never learns: a ghost, an exported champion, an opponent.

Shapes: N rows, F numbers of a flattened observation, n logits of all branches, H numbers of a
state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import NetworkConfig
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.actor_critic import ActorCritic
from arena.networks.distributions import Distribution
from arena.networks.make import make_actor_critic
from arena.networks.weights import load_tensors, without_critic


class FrozenPolicy:
    """An `arena.core.Actor` over weights of its own: no live tensor is shared, nothing moves.

    One with a memory is an `arena.core.RememberingActor`: its ``act_from`` is called, and all that
    knows no state raises ValueError. Keeps nothing between calls, so several threads may use one.
    """

    reads_agent = False
    """All agents' rows may come in one call."""

    def __init__(self, network: ActorCritic, *, greedy: bool = False) -> None:
        """Take over a network that nobody else holds; see `from_weights`."""
        self._network = network.eval().requires_grad_(False)
        self._make_distribution = network.distribution
        self._greedy = greedy

    @classmethod
    def from_weights(
        cls,
        network: NetworkConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        device: torch.device,
        greedy: bool = False,
    ) -> FrozenPolicy:
        """Copy a policy's weights.

        Args:
            network: The architecture, from the configuration: it may name code to import.
            weights: As `arena.core.Algorithm.weights` gives them.
            observation: What the policy sees.
            action: What it chooses from.
            device: Where to play.
            greedy: Play the likeliest action instead of sampling.

        Raises:
            CheckpointCorrupt: If names or shapes are not those of the architecture, or a number is
                not finite.
            ConfigError: As `make_actor_critic`.
        """
        policy = make_actor_critic(network, observation=observation, action=action, seed=0)
        playing = without_critic(network, weights)
        load_tensors(policy.state_dict(), playing, what="weights")
        return cls(policy.to(device), greedy=greedy)

    @property
    def network(self) -> ActorCritic:
        """What it plays with; to be read, not changed."""
        return self._network

    @property
    def greedy(self) -> bool:
        """Whether it plays the likeliest action instead of sampling."""
        return self._greedy

    @property
    def state_size(self) -> int:
        """H; 0: it has no memory."""
        return self._network.state_size

    @torch.inference_mode()
    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Masked logits of rows [N, F], on the policy's device. float32 [N, n]."""
        return self._network.logits(observation, action_mask)

    @torch.inference_mode()
    def distribution(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> Distribution:
        """Of the actions, for rows [N, F] on the policy's device."""
        return self._distribution(observation, action_mask)

    @torch.inference_mode()
    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Choose one action per row, as in `arena.core.Actor`; who decides makes no difference."""
        distribution = self._distribution(observation, action_mask)
        return distribution.greedy() if self._greedy else distribution.sample(generator)

    @torch.inference_mode()
    def act_from(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        state: torch.Tensor,
        agent: str,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose one action per row, as in `arena.core.RememberingActor`."""
        network = self._network
        normalized = network.normalize_observation(observation)
        parameters, next_state = network.policy_step(normalized, state)
        distribution = self._make_distribution(parameters, action_mask)
        action = distribution.greedy() if self._greedy else distribution.sample(generator)
        return action, next_state

    def _distribution(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None
    ) -> Distribution:
        network = self._network
        parameters = network.policy(network.normalize_observation(observation))
        return self._make_distribution(parameters, action_mask)
