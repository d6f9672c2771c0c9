"""A policy that plays and never learns: a ghost, an exported champion, an opponent.

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import NetworkConfig
from arena.errors import CheckpointCorrupt
from arena.networks import heads
from arena.networks.actor_critic import ActorCritic
from arena.networks.make import make_actor_critic
from arena.networks.weights import load_tensors


class FrozenPolicy:
    """An `arena.core.Actor` over weights of its own: no live tensor is shared, nothing moves.

    Keeps no state between calls, so several threads may use one.
    """

    reads_agent = False
    """All agents' rows may come in one call."""

    def __init__(self, network: ActorCritic, *, greedy: bool = False) -> None:
        """Take over a network that nobody else holds; see `from_weights`."""
        self._network = network.eval().requires_grad_(False)
        self._greedy = greedy

    @classmethod
    def from_weights(
        cls,
        network: NetworkConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        device: torch.device,
        greedy: bool = False,
    ) -> FrozenPolicy:
        """Copy a policy's weights.

        Args:
            network: The architecture; sizes come from the tensors.
            weights: As `arena.core.Algorithm.weights` gives them.
            device: Where to play.
            greedy: Play the likeliest action instead of sampling.

        Raises:
            CheckpointCorrupt: If names or shapes are not those of the architecture, or a number is
                not finite.
        """
        observation_size, num_actions = _sizes(network, weights)
        policy = make_actor_critic(
            network, observation_size=observation_size, num_actions=num_actions, seed=0
        )
        load_tensors(policy.state_dict(), weights, what="weights")
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
    def num_actions(self) -> int:
        """The n actions it chooses from."""
        return self._network.head.out_features - 1

    @torch.inference_mode()
    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Masked logits of float32 [N, F], on the policy's device. float32 [N, n]."""
        return self._network.logits(observation, action_mask)

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
        logits, _ = self._network(self._network.normalize_observation(observation))
        if self._greedy:
            return heads.greedy(logits, action_mask)
        return heads.sample(heads.mask_logits(logits, action_mask), generator=generator)


def _sizes(network: NetworkConfig, weights: Mapping[str, torch.Tensor]) -> tuple[int, int]:
    """F and n, from the first and the last layer."""
    first = weights.get("trunk.0.weight" if network.hidden_sizes else "head.weight")
    last = weights.get("head.weight")
    if first is None or last is None or first.ndim != 2 or last.ndim != 2 or last.shape[0] < 2:
        raise CheckpointCorrupt(
            f"weights must be those of the network {network.model_dump()}, got {sorted(weights)}"
        )
    return first.shape[1], last.shape[0] - 1
