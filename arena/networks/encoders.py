"""What turns a flattened observation into features.

Orthogonal initialisation: Saxe et al., "Exact solutions to the nonlinear dynamics of learning in
deep linear neural networks" (ICLR 2014). Shapes: N rows, F features of an observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

TRUNK_GAIN = math.sqrt(2.0)
"""Keeps the variance of what passes a ReLU."""


def make_linear(
    in_features: int, out_features: int, *, gain: float, generator: torch.Generator
) -> nn.Linear:
    """A linear layer with orthogonal weights and zero bias, drawn from ``generator`` alone."""
    # Made without values, because nn.Linear would draw them from the global generator.
    layer = nn.Linear(in_features, out_features, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def make_mlp(
    observation_size: int, hidden_sizes: Sequence[int], *, generator: torch.Generator
) -> nn.Sequential:
    """Linear layers, each with a ReLU. [N, F] to [N, hidden_sizes[-1]]; without any, identity."""
    layers: list[nn.Module] = []
    in_features = observation_size
    for out_features in hidden_sizes:
        layers.append(make_linear(in_features, out_features, gain=TRUNK_GAIN, generator=generator))
        layers.append(nn.ReLU(inplace=True))
        in_features = out_features
    return nn.Sequential(*layers)
