"""A policy's network: one trunk, one linear layer for logits and value, the normalizers inside.

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from arena.learning.normalization import RunningNormalizer
from arena.networks.encoders import make_linear, make_mlp
from arena.networks.heads import mask_logits

HEAD_GAIN = 0.01
"""Near-zero logits: the first policy is almost uniform, and the first value almost the mean."""

OBSERVATION_CLIP = 10.0


class ActorCritic(nn.Module):
    """Everything that playing needs, so its ``state_dict`` is a policy's weights.

    `normalize_observation` and `forward` are two calls because a learner normalizes a rollout once
    and then passes it through the network in every epoch. No part of it changes while it plays.
    """

    def __init__(
        self,
        *,
        observation_size: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        normalize_observations: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.observation_normalizer = (
            RunningNormalizer(observation_size, clip=OBSERVATION_CLIP)
            if normalize_observations
            else None
        )
        self.return_normalizer = RunningNormalizer(1)
        self.trunk = make_mlp(observation_size, hidden_sizes, generator=generator)
        features = hidden_sizes[-1] if hidden_sizes else observation_size
        # One product for both: the value is the last output.
        self.head = make_linear(features, num_actions + 1, gain=HEAD_GAIN, generator=generator)

    def normalize_observation(self, observation: torch.Tensor) -> torch.Tensor:
        """By the running statistics, where the network has them. float32 [N, F] to [N, F]."""
        if self.observation_normalizer is None:
            return observation
        return self.observation_normalizer.normalize(observation)

    def forward(self, normalized: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and value of normalized observations.

        Args:
            normalized: From `normalize_observation`. float32 [N, F].

        Returns:
            Unmasked logits float32 [N, n], and the normalized value float32 [N].
        """
        outputs = self.head(self.trunk(normalized)).float()
        return outputs[:, :-1], outputs[:, -1]

    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits of raw observations, illegal actions at float32's minimum. float32 [N, n]."""
        logits, _ = self(self.normalize_observation(observation))
        return mask_logits(logits, action_mask)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Expected discounted return of raw observations, in units of reward. float32 [N]."""
        _, value = self(self.normalize_observation(observation))
        return self.return_normalizer.denormalize(value)
