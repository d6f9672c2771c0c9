"""A slow copy of a network: an exponential average of its parameters.

Two things are such averages: the weights that play where the live ones are too restless (Polyak and
Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992), and the magnet, the
policy's own past that a loss holds it near (Sokota et al., "A Unified Approach to Reinforcement
Learning, Quantal Response Equilibria, and Two-Player Zero-Sum Games", ICLR 2023).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import nn

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class AveragedNetwork(Generic[NetworkT]):
    """A network that follows a live one and shares no memory with it."""

    def __init__(self, live: NetworkT) -> None:
        """Start as a copy of the live network."""
        self.network = copy.deepcopy(live).requires_grad_(False)
        """Computes with the averaged parameters."""
        # Lists in the order of `parameters()`, for one fused operation over all.
        self._average: list[torch.Tensor] = list(self.network.parameters())
        self._live: list[torch.Tensor] = list(live.parameters())
        self._buffers = list(zip(self.network.buffers(), live.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Move towards the live network."""
        # a <- a + rate (w - a)
        torch._foreach_lerp_(self._average, self._live, rate)
        self._copy_buffers()

    @torch.no_grad()
    def restart(self) -> None:
        """Copy the live network."""
        torch._foreach_copy_(self._average, self._live)
        self._copy_buffers()

    def _copy_buffers(self) -> None:
        # Statistics of normalizers are copied, not averaged: the live network's are more exact.
        for own, live in self._buffers:
            own.copy_(live)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the live average by name of parameter."""
        return {name: tensor.detach() for name, tensor in self.network.named_parameters()}


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with a prefix before their names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors whose name begins with a prefix, with the prefix removed."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
