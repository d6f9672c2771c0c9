"""A slow copy of a network: an exponential average of its parameters.

Two things are such averages: what plays where the live weights are too restless (Polyak and
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
    """Follows a live network and shares no memory with it.

    Buffers (normalizers) are not averaged: the live network's are more exact.
    """

    def __init__(self, live: NetworkT) -> None:
        """Start where the live network is."""
        self.network = copy.deepcopy(live).requires_grad_(False)
        """Computes with the averaged parameters."""
        self._average: list[torch.Tensor] = list(self.network.parameters())
        self._live: list[torch.Tensor] = list(live.parameters())
        self._buffers = list(zip(self.network.buffers(), live.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Go towards the live network: a <- a + rate (w - a)."""
        torch._foreach_lerp_(self._average, self._live, rate)
        self._copy_buffers()

    @torch.no_grad()
    def restart(self) -> None:
        """Be what the live network is."""
        torch._foreach_copy_(self._average, self._live)
        self._copy_buffers()

    def _copy_buffers(self) -> None:
        for own, live in self._buffers:
            own.copy_(live)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The live average by name of parameter."""
        return {name: tensor.detach() for name, tensor in self.network.named_parameters()}


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors, their names behind a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
