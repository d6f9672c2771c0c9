"""Initialization of layers: orthogonal weights, zero biases, from a given generator alone.

Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
(ICLR 2014).

Tests: `tests/arena/networks/test_actor_critic.py`.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

TRUNK_GAIN = math.sqrt(2.0)
"""Gain that keeps the variance of activations through a ReLU."""

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def fill(layer: Layer, *, gain: float, generator: torch.Generator) -> Layer:
    """Initialize a layer on the CPU.

    Args:
        layer: Layer on the device ``meta``: made elsewhere, it would draw from the global
            generator.
        gain: Length of each row (or column) of the weights, taken as a matrix of outputs by inputs.
        generator: The only source of randomness.
    """
    made = layer.to_empty(device="cpu")
    nn.init.orthogonal_(made.weight, gain, generator=generator)
    if made.bias is not None:
        nn.init.zeros_(made.bias)
    return made
