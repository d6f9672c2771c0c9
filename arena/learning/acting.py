"""Acting while a policy trains: the forward pass, and the precision of its products.

Weights, gradients, optimizer and everything that is published stay float32: only the inputs of
matrix products are rounded. Micikevicius et al., "Mixed Precision Training" (ICLR 2018).
Shapes: N rows, P parameters of a distribution, H numbers of a recurrent state.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from arena.config import NetworkConfig
from arena.core import ActorInput, AlgorithmOutput
from arena.networks.actor_critic import ActorCritic
from arena.networks.planes import convolved_parts
from arena.spaces import ObservationLayout

MIN_WIDTH = 64
"""Products of narrower layers gain less than the rounding costs."""


class ActingNetwork:
    """The half of an `arena.core.Algorithm` that acts and predicts values.

    Args:
        network: Network on its device; it does not change during a rollout.
        product_dtype: Dtype of the products' inputs.
    """

    def __init__(self, network: ActorCritic, *, product_dtype: torch.dtype) -> None:
        self._network = network
        self._product_dtype = product_dtype
        self._distribution = network.distribution
        self._device_type = network.head.weight.device.type

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0 if the policy is not recurrent."""
        return self._network.state_size

    @property
    def critic_size(self) -> int:
        """Size G of the critic's input; 0: values are computed from observations."""
        return self._network.critic_size

    @torch.inference_mode()
    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        """Sample one action per row."""
        # Acting uses the update's precision, so that the first ratio is exactly 1.
        with self._autocast():
            parameters, value, recurrent_state = self._forward(inputs)
        distribution = self._distribution(parameters, inputs.action_mask)
        action = distribution.sample(generator)
        return AlgorithmOutput(
            action=action,
            log_prob=distribution.log_prob(action),
            # V = sigma v + mu, because advantages add values to rewards.
            value=self._network.return_normalizer.denormalize(value),
            recurrent_state=recurrent_state,
        )

    @torch.inference_mode()
    def value(self, inputs: ActorInput) -> torch.Tensor:
        """Return the expected discounted return of each row, in units of reward. float32 [N]."""
        with self._autocast():
            _, value, _ = self._forward(inputs)
        return self._network.return_normalizer.denormalize(value)

    def _forward(
        self, inputs: ActorInput
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return parameters [N, P], normalized values [N] and the next recurrent state [N, H]."""
        network, critic_input = self._network, inputs.critic_input
        normalized = network.normalize_observation(inputs.observation)
        if critic_input is not None:
            critic_input = network.normalize_critic_input(critic_input)
        if inputs.recurrent_state is None:
            return *network(normalized, critic_input), None
        return network.step(normalized, inputs.recurrent_state, critic_input)

    def _to_product_dtype(self, normalized: torch.Tensor) -> torch.Tensor:
        """Round rows once instead of in every epoch; images stay uint8."""
        if not normalized.is_floating_point():
            return normalized
        # The first product would round them anyway under autocast.
        return normalized.to(self._product_dtype)

    def _autocast(self) -> AbstractContextManager[object]:
        if self._product_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._product_dtype)


def product_dtype(
    precision: str,
    *,
    network: NetworkConfig,
    device: torch.device,
    observation: ObservationLayout | None = None,
) -> torch.dtype:
    """Return the dtype of products.

    Args:
        precision: ``float32``, ``bfloat16``, or ``auto``: bfloat16 where the hardware multiplies it
            and the network gains: it is wide enough or has convolutions, and is not recurrent and
            has no module of the user's.
        network: Architecture of the policy.
        device: Device that it trains on.
        observation: Layout of the observations; None: a vector.

    Raises:
        ConfigError: If the network has convolutions and the observation is no image.
    """
    if precision == "bfloat16":
        return torch.bfloat16
    # Rounding errors add up along a core's sequence, and their effect on users' modules is
    # unknown.
    if precision == "float32" or network.core != "none" or ":" in network.encoder:
        return torch.float32
    wide = max(network.hidden_sizes, default=0) >= MIN_WIDTH
    gains = wide or (observation is not None and bool(convolved_parts(network, observation)))
    return torch.bfloat16 if gains and _multiplies_bfloat16(device) else torch.float32


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        # Emulated bfloat16 products are slower than float32 products.
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
