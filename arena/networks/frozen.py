"""Frozen policies, which play and never learn: ghosts, exported champions, opponents.

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
    """An `arena.core.Actor` with a copy of the weights: it shares no live tensor and never changes.

    A recurrent one is an `arena.core.RememberingActor`: ``act_from`` plays it, and the methods
    without a state raise ValueError. Keeps nothing between calls, so several threads may use one.
    """

    reads_agent = False
    """All agents' rows may come in one call."""

    def __init__(self, network: ActorCritic, *, greedy: bool = False) -> None:
        """Take ownership of a network that nothing else holds; see `from_weights`."""
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
            network: Architecture from the configuration: it may name code to import.
            weights: Weights as from `arena.core.Algorithm.weights`.
            observation: Layout of the policy's observations.
            action: Layout of its actions.
            device: Device to play on.
            greedy: Play the likeliest action instead of sampling.

        Raises:
            CheckpointCorrupt: If names or shapes are not those of the architecture, or a number is
                not finite.
            ConfigError: As for `make_actor_critic`.
        """
        policy = make_actor_critic(network, observation=observation, action=action, seed=0)
        playing = without_critic(network, weights)
        load_tensors(policy.state_dict(), playing, what="weights")
        return cls(policy.to(device), greedy=greedy)

    @property
    def network(self) -> ActorCritic:
        """The policy's network; not to be changed."""
        return self._network

    @property
    def greedy(self) -> bool:
        """Whether it plays the likeliest action instead of sampling."""
        return self._greedy

    @property
    def state_size(self) -> int:
        """H; 0: the policy is not recurrent."""
        return self._network.state_size

    @torch.inference_mode()
    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return masked logits of rows [N, F], on the policy's device. float32 [N, n]."""
        return self._network.logits(observation, action_mask)

    @torch.inference_mode()
    def distribution(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return the distribution of actions for rows [N, F] on the policy's device."""
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
        """Choose one action per row, as in `arena.core.Actor`; ``agent`` is unused."""
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
