"""What a network does while the policy that learns plays.

Shapes: N rows, F features of an observation, H numbers of a state, G of a row that only the value
reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from arena.networks.actor_critic import ActorCritic


class PlayingNetwork:
    """The half of an `arena.core.Algorithm` that decides and values; with a memory, a centralized
    critic or both also of a `RememberingAlgorithm` and a `CentralizedAlgorithm`.

    Args:
        network: On its device; changed by nobody while it plays.
        product_dtype: Of products.
    """

    def __init__(self, network: ActorCritic, *, product_dtype: torch.dtype) -> None:
        self._network = network
        self._product_dtype = product_dtype
        self._distribution = network.distribution
        self._device_type = network.head.weight.device.type

    @property
    def state_size(self) -> int:
        """H; 0: it has no memory."""
        return self._network.state_size

    @property
    def critic_size(self) -> int:
        """G; 0: its values see what it sees."""
        return self._network.critic_size

    @torch.inference_mode()
    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample actions while training: actions, log-probabilities, values, each [N]."""
        network = self._network
        # As in the update, so that the first ratio is exactly 1.
        with self._autocast():
            parameters, value = network(network.normalize_observation(observation))
        return self._sampled(parameters, value, action_mask, generator=generator)

    @torch.inference_mode()
    def act_from(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        state: torch.Tensor,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `act`, with a memory: and the states afterwards, [N, H]."""
        network = self._network
        with self._autocast():
            normalized = network.normalize_observation(observation)
            parameters, value, next_state = network.step(normalized, state)
        return *self._sampled(parameters, value, action_mask, generator=generator), next_state

    @torch.inference_mode()
    def act_with_critic(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        critic_input: torch.Tensor,
        state: torch.Tensor | None,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """As `act`, or `act_from` where there is a state, with values that see more."""
        with self._autocast():
            parameters, value, next_state = self._judge(observation, critic_input, state)
        return *self._sampled(parameters, value, action_mask, generator=generator), next_state

    def _judge(
        self, observation: torch.Tensor, critic_input: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Parameters, normalized values, and states afterwards where there are such."""
        network = self._network
        normalized = network.normalize_observation(observation)
        judged = network.normalize_critic_input(critic_input)
        if state is None:
            return *network(normalized, judged), None
        return network.step(normalized, state, judged)

    def _sampled(
        self,
        parameters: torch.Tensor,
        value: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        distribution = self._distribution(parameters, action_mask)
        action = distribution.sample(generator)
        value = self._network.return_normalizer.denormalize(value)
        return action, distribution.log_prob(action), value

    @torch.inference_mode()
    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Expected discounted return. float32 [N, F] to float32 [N]."""
        with self._autocast():
            return self._network.value(observation)

    @torch.inference_mode()
    def value_from(self, observation: torch.Tensor, *, state: torch.Tensor) -> torch.Tensor:
        """As `value`, with a memory."""
        network = self._network
        with self._autocast():
            _, value, _ = network.step(network.normalize_observation(observation), state)
        return network.return_normalizer.denormalize(value)

    @torch.inference_mode()
    def value_with_critic(
        self, observation: torch.Tensor, *, critic_input: torch.Tensor, state: torch.Tensor | None
    ) -> torch.Tensor:
        """As `value`, or `value_from` where there is a state, with values that see more."""
        with self._autocast():
            _, value, _ = self._judge(observation, critic_input, state)
        return self._network.return_normalizer.denormalize(value)

    def _autocast(self) -> AbstractContextManager[object]:
        if self._product_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._product_dtype)
