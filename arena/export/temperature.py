"""Weights of a policy at a temperature.

Shapes: P outputs of the last layer, W its inputs, n logits, C continuous numbers.

Tests: `tests/arena/export/test_levels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from arena.config import NetworkConfig


def tempered(
    weights: Mapping[str, torch.Tensor], network: NetworkConfig, *, temperature: float
) -> dict[str, torch.Tensor]:
    """Return weights that sample by the probabilities of others to the power of 1 / temperature.

    Logits are divided by it, deviations of continuous numbers multiplied by its square root; the
    value and the likeliest actions stay.

    Args:
        weights: Weights of a policy, of which nothing is changed.
        network: Its architecture.
        temperature: Temperature, above 0.
    """
    changed = dict(weights)
    numbers = len(weights["log_std"]) if "log_std" in weights else 0
    shared = network.critic == "own" and not network.separate_value
    # The last layer has P = n + C outputs, and one more where it gives the value, too.
    num_logits = len(weights["head.bias"]) - numbers - shared
    for name in ("head.weight", "head.bias"):
        changed[name] = weights[name].clone()
        changed[name][:num_logits] /= temperature
    if numbers:
        # p(x)^(1 / T) of a normal density has T times its variance.
        changed["log_std"] = weights["log_std"] + 0.5 * math.log(temperature)
    return changed
