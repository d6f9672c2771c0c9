"""In which precision a policy's products are computed while it trains.

Weights, gradients, optimizer and everything that is published stay float32: only the inputs of
matrix products are rounded. Micikevicius et al., "Mixed Precision Training" (ICLR 2018).
"""

from __future__ import annotations

import torch

from arena.config import NetworkConfig
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.planes import convolved_parts

MIN_WIDTH = 64
"""Products of narrower layers gain less than the rounding costs."""


def product_dtype(
    precision: str,
    *,
    network: NetworkConfig,
    device: torch.device,
    observation: ObservationLayout | None = None,
) -> torch.dtype:
    """The dtype of products.

    Args:
        precision: ``float32``, ``bfloat16``, or ``auto``: bfloat16 where the hardware multiplies it
            and the network gains: it is wide enough or has convolutions, and has no memory and no
            module of the user's.
        network: The architecture.
        device: Where it trains.
        observation: What the network sees; None: a vector.

    Raises:
        ConfigError: If convolutions are asked for and nothing can be convolved.
    """
    if precision == "bfloat16":
        return torch.bfloat16
    if precision == "float32" or network.core != "none" or ":" in network.encoder:
        return torch.float32
    wide = max(network.hidden_sizes, default=0) >= MIN_WIDTH
    gains = wide or (observation is not None and bool(convolved_parts(network, observation)))
    return torch.bfloat16 if gains and _multiplies_bfloat16(device) else torch.float32


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
