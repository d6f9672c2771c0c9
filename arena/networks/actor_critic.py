"""A policy's network: features, an optional recurrent core, one linear layer for policy and value,
and the normalizers.

Shapes: N rows, F numbers of a flattened observation, n logits of all branches, C continuous
numbers, P = n + 2 C parameters of the policy's distribution, H numbers of a recurrent state, G
numbers of a critic's input.
"""

from __future__ import annotations

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.cores import Core, make_core
from arena.networks.distributions import make_distribution
from arena.networks.encoders import make_encoder, make_linear, make_mlp
from arena.networks.heads import mask_logits
from arena.networks.normalizers import make_observation_normalizer
from arena.networks.planes import of_critic
from arena.normalization import RETURN_MEMORY, RunningNormalizer

HEAD_GAIN = 0.01
"""Gain of the last layer. Near-zero logits make the first policy almost uniform; a near-zero value
is almost the mean return.
"""


class ActorCritic(nn.Module):
    """Network with everything that playing needs: its ``state_dict`` is a policy's weights.

    `normalize_observation` and `forward` are two calls because a learner normalizes a rollout once
    and then passes it through the network in every epoch. Nothing in the module changes while it
    plays.

    A network with a core is recurrent: only `step` and `unroll` give its parameters and values, and
    the caller keeps the recurrent state.

    A network with a centralized critic (``network.critic``) takes a critic input for the value,
    after `normalize_critic_input`. A network made without the layout of that input can only play.

    Attributes:
        action: Layout of the actions.
        distribution: Maker of the action distribution from parameters.
        state_size: H; 0: the network is not recurrent.
        critic_size: G; 0: the value reads the observation, or there is none.
    """

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        generator: torch.Generator,
        critic_input: ObservationLayout | None = None,
    ) -> None:
        super().__init__()
        self.action = action
        self.distribution = make_distribution(action)
        self.observation_normalizer = (
            make_observation_normalizer(observation) if network.normalize_observations else None
        )
        # Part of the weights, as a value without its units means nothing.
        self.return_normalizer = RunningNormalizer(1, memory=RETURN_MEMORY)
        self.encoder, features = make_encoder(network, observation, generator=generator)
        self.trunk = make_mlp(features, network.hidden_sizes, generator=generator)
        width = network.hidden_sizes[-1] if network.hidden_sizes else features
        self.core = make_core(network, in_features=width, generator=generator)
        self.state_size = 0
        if self.core is not None:
            width, self.state_size = self.core.num_features, self.core.state_size
        outputs = action.num_logits + action.num_continuous
        # One product for both where they share the trunk: the value is the last output. Measured to
        # be faster than two.
        self._shares_value = network.critic == "own" and not network.separate_value
        shared = 1 if self._shares_value else 0
        self.head = make_linear(width, outputs + shared, gain=HEAD_GAIN, generator=generator)
        # Deviations before squashing or clipping; they do not depend on the observation.
        self.log_std = (
            nn.Parameter(torch.zeros(action.num_continuous)) if action.num_continuous else None
        )
        self.critic = None
        self.critic_normalizer = None
        self.critic_size = 0
        if network.critic == "own":
            if network.separate_value:
                self.critic = _make_critic(network, observation, generator=generator)
        elif critic_input is not None:
            # A policy that only plays is made without the critic's layout, and so without its
            # weights.
            self.critic_size = critic_input.size
            self.critic = _make_critic(
                of_critic(network, critic_input), critic_input, generator=generator
            )
            if network.normalize_observations:
                self.critic_normalizer = make_observation_normalizer(critic_input)

    @property
    def has_value(self) -> bool:
        """Whether it has a value that needs nothing but observations: no centralized critic."""
        return self._shares_value or (self.critic is not None and not self.critic_size)

    def normalize_observation(self, observation: torch.Tensor) -> torch.Tensor:
        """Normalize by the running statistics, where the network has them. [N, F] to [N, F].

        Without statistics rows are returned as they are, in their dtype: rows of images stay uint8.
        """
        if self.observation_normalizer is None:
            return observation
        return self.observation_normalizer.normalize(observation)

    def normalize_critic_input(self, critic_input: torch.Tensor) -> torch.Tensor:
        """Normalize as `normalize_observation` does, by separate statistics. [N, G] to [N, G]."""
        if self.critic_normalizer is None:
            return critic_input
        return self.critic_normalizer.normalize(critic_input)

    def forward(
        self, normalized: torch.Tensor, critic_input: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the policy's parameters and the value of normalized observations.

        Args:
            normalized: Output of `normalize_observation`, possibly in fewer bits. [N, F].
            critic_input: Normalized input of a centralized critic; None without one. [N, G].

        Returns:
            Parameters for ``distribution``, logits unmasked, float32 [N, P]; and the normalized
                value float32 [N].
        """
        outputs = self._outputs(normalized)
        if self._shares_value:
            return self._with_deviations(outputs[:, :-1]), outputs[:, -1]
        value = self._value_apart(normalized, critic_input)
        return self._with_deviations(outputs), value

    def step(
        self,
        normalized: torch.Tensor,
        state: torch.Tensor,
        critic_input: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute one decision per row of a recurrent network.

        Args:
            normalized: As for `forward`. [N, F].
            state: Recurrent state before the decision. float32 [N, H].
            critic_input: As for `forward`.

        Returns:
            As of `forward`, and the recurrent state after the decision, float32 [N, H].
        """
        remembered, next_state = self._memory.step(self._features(normalized), state)
        return *self._judged(normalized, remembered, critic_input), next_state

    def policy_step(
        self, normalized: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute `step` without the value: parameters [N, P] and the next state [N, H]."""
        remembered, next_state = self._memory.step(self._features(normalized), state)
        outputs = self.head(remembered).float()
        outputs = outputs[:, :-1] if self._shares_value else outputs
        return self._with_deviations(outputs), next_state

    def unroll(
        self,
        normalized: torch.Tensor,
        *,
        batch_sizes: torch.Tensor,
        state: torch.Tensor,
        critic_input: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute all decisions of whole sequences of a recurrent network.

        Args:
            normalized: Rows in the order of `arena.learning.sequences.Packed`. [R, F].
            batch_sizes: As there. int64 [L], on the CPU.
            state: As there. float32 [Q, H].
            critic_input: As for `forward`, in the same order. [R, G].

        Returns:
            As of `forward`, for each row.
        """
        features = self._features(normalized)
        remembered = self._memory.unroll(features, batch_sizes=batch_sizes, state=state)
        return self._judged(normalized, remembered, critic_input)

    def policy(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the parameters that `forward` gives, without the value. float32 [N, P]."""
        outputs = self._outputs(normalized)
        return self._with_deviations(outputs[:, :-1] if self._shares_value else outputs)

    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return logits of raw observations, illegal choices at float32's minimum.
        float32 [N, n].
        """
        parameters = self.policy(self.normalize_observation(observation))
        return mask_logits(parameters[:, : self.action.num_logits], action_mask)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the expected discounted return of raw observations, in units of reward. float32
        [N].
        """
        _, value = self(self.normalize_observation(observation))
        return self.return_normalizer.denormalize(value)

    def _outputs(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the policy's head. float32 [N, ...]."""
        if self.state_size:
            raise ValueError("a network with a core needs the state: call step or unroll")
        outputs: torch.Tensor = self.head(self._features(normalized))
        return outputs.float()

    def _features(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the last hidden layer. [N, ...]."""
        features: torch.Tensor = self.trunk(_encoded(self.encoder, normalized))
        return features

    @property
    def _memory(self) -> Core:
        if self.core is None:
            raise ValueError("a network without a core has no state: call it as it is")
        return self.core

    def _judged(
        self,
        normalized: torch.Tensor,
        remembered: torch.Tensor,
        critic_input: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return parameters and value from the outputs of the core."""
        outputs = self.head(remembered).float()
        if self._shares_value:
            return self._with_deviations(outputs[:, :-1]), outputs[:, -1]
        # The value reads the policy's recurrent output without training it, so that there is only
        # one state.
        value = self._value_apart(normalized, critic_input, remembered.detach())
        return self._with_deviations(outputs), value

    def _value_apart(
        self,
        normalized: torch.Tensor,
        critic_input: torch.Tensor | None,
        remembered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the value of a network that shares nothing but the recurrent output.
        float32 [N].
        """
        if self.critic is None:
            raise ValueError("a network without the layout of its critic's input only plays")
        judged = critic_input if self.critic_size else normalized
        if judged is None:
            raise ValueError("a centralized critic needs its input: there is none")
        value: torch.Tensor = self.critic(judged, remembered)
        return value.float()[:, 0]

    def _with_deviations(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.log_std is None:
            return outputs
        # [C] -> [N, C], one for all observations
        return torch.cat([outputs, self.log_std.expand(outputs.shape[0], -1)], dim=1)


class Critic(nn.Module):
    """Value with an encoder and hidden layers of its own; it shares the recurrent output."""

    def __init__(self, encoder: nn.Module | None, trunk: nn.Sequential, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.trunk = trunk
        self.head = head

    def forward(
        self, normalized: torch.Tensor, remembered: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the value. [N, F], and the output of the policy's core if any, to [N, 1]."""
        features = _encoded(self.encoder, normalized)
        if remembered is not None:
            # float: a core gives float32 under autocast, too.
            features = torch.cat([features.float(), remembered], dim=1)
        value: torch.Tensor = self.head(self.trunk(features))
        return value


def _make_critic(
    network: NetworkConfig, observation: ObservationLayout, *, generator: torch.Generator
) -> Critic:
    encoder, features = make_encoder(network, observation, generator=generator)
    # Beside its features a critic reads the output of the policy's core.
    features += network.core_size if network.core != "none" else 0
    trunk = make_mlp(features, network.hidden_sizes, generator=generator)
    width = network.hidden_sizes[-1] if network.hidden_sizes else features
    head = make_linear(width, 1, gain=HEAD_GAIN, generator=generator)
    return Critic(encoder, trunk, head)


def _encoded(encoder: nn.Module | None, normalized: torch.Tensor) -> torch.Tensor:
    """Return the input of the hidden layers."""
    if encoder is not None:
        features: torch.Tensor = encoder(normalized)
        return features
    return normalized if normalized.is_floating_point() else normalized.float()
