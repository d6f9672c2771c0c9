"""Frozen policies, which play and never learn: ghosts, exported champions, opponents.

Shapes: N rows, F numbers of a flattened observation, n logits of all branches, H numbers of a
recurrent state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import NetworkConfig
from arena.core import Actor, ActorInput, ActorOutput
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.distributions import Distribution
from arena.networks.weights import load_tensors, without_critic
from arena.spaces import ActionLayout, ObservationLayout
from arena.users_code import naming_network


class FrozenPolicy(Actor):
    """An `arena.core.Actor` over weights of its own: no live tensor is shared, nothing moves.

    A recurrent one raises ValueError where it is given no recurrent state. Keeps nothing between
    calls, so several threads may use one.
    """

    reads_agent = False
    """Whether `act` reads the agent; rows of all agents may come in one call."""

    def __init__(
        self, network: ActorCritic, *, greedy: bool = False, key: str | None = None
    ) -> None:
        """Take ownership of a network that nothing else holds; see `from_weights`."""
        self._network = network.eval().requires_grad_(False)
        self._make_distribution = network.distribution
        self._greedy = greedy
        self._key = key

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
        key: str | None = None,
    ) -> FrozenPolicy:
        """Copy a policy's weights.

        Args:
            network: Architecture from the configuration: it may name code to import.
            weights: Weights as from `arena.core.Algorithm.weights`.
            observation: Layout of the policy's observations.
            action: Layout of its actions.
            device: Device to play on.
            greedy: Play the likeliest action instead of sampling.
            key: Key of the weights in their run, which errors of `act` then name (`NetworkRaised`).

        Raises:
            CheckpointCorrupt: If names or shapes are not those of the architecture, or a number is
                not finite.
            ConfigError: As for `make_actor_critic`.
        """
        # `load_tensors` refuses missing names, so all fresh weights are overwritten.
        policy = make_actor_critic(network, observation=observation, action=action, seed=0)
        # A centralized critic has no part in play, so the network is made without it.
        playing = without_critic(network, weights)
        load_tensors(policy.state_dict(), playing, what="weights")
        return cls(policy.to(device), greedy=greedy, key=key)

    @property
    def network(self) -> ActorCritic:
        """The policy's network; not to be changed."""
        return self._network

    @property
    def greedy(self) -> bool:
        """Return whether it plays the likeliest action instead of sampling."""
        return self._greedy

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0: the policy is not recurrent."""
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
        parameters, _ = self._network.decide(observation, None)
        return self._make_distribution(parameters, action_mask)

    @torch.inference_mode()
    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Choose one action per row, as in `arena.core.Actor`."""
        with naming_network(key=self._key):
            parameters, after = self._network.decide(inputs.observation, inputs.recurrent_state)
            distribution = self._make_distribution(parameters, inputs.action_mask)
            action = distribution.greedy() if self._greedy else distribution.sample(generator)
            return ActorOutput(action=action, recurrent_state=after)

    @torch.inference_mode()
    def judge(
        self, inputs: ActorInput
    ) -> tuple[Distribution, torch.Tensor | None, torch.Tensor | None]:
        """Return the policy's distribution and value for N rows that it would decide about.

        Returns:
            Distribution of its actions; expected discounted return, in units of reward, float32
            [N], None: its critic reads more than observations, or it has none; and recurrent state
            after the decisions, float32 [N, H], None where there is none.
        """
        parameters, value, after = self._network.judge(inputs.observation, inputs.recurrent_state)
        return self._make_distribution(parameters, inputs.action_mask), value, after
