"""Diagonal Gaussians over continuous actions, squashed into their bounds or not.

Haarnoja et al., "Soft Actor-Critic" (ICML 2018), appendix C. With a = mid + half tanh(u):
log p(a) = log N(u) - sum log half - sum log(1 - tanh(u)^2), and without cancellation
log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)).
Shapes: N rows, C continuous numbers, Q nodes of the quadrature.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from arena.envs.spaces.actions import ActionLayout

LOG_STD_LIMIT = 10.0
"""Limit of log deviations, far from a policy's needs; variance and inverse stay finite in
float32.
"""

NUM_NODES = 16
"""Nodes of the Gauss-Hermite quadrature for the entropy of a squashed Gaussian."""

LOG_TWO = math.log(2.0)
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Gaussian:
    """Independent Gaussians; the environment clips. Rows are float32 [N, C].

    An entropy bonus can widen them without end, since the entropy is that before the clip.
    """

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self._mean = mean
        self._log_std = log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample rows, float32 [N, C]."""
        mean = self._mean
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        # u = mean + std * z with z ~ N(0, 1)
        return mean + self._log_std.exp() * noise

    def greedy(self) -> torch.Tensor:
        """Return the means. float32 [N, C]."""
        return self._mean

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log density of float32 [N, C]."""
        # log N(u) = -((u - mean) / std)^2 / 2 - log std - log(2 pi) / 2
        deviations = (action - self._mean) * (-self._log_std).exp()
        return (-0.5 * deviations.square() - self._log_std - HALF_LOG_TWO_PI).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Return the entropy in closed form."""
        # H = sum (1/2 + log(2 pi) / 2 + log std)
        return (self._log_std + (0.5 + HALF_LOG_TWO_PI)).sum(dim=-1)

    def divergence(self, other: Self) -> torch.Tensor:
        """Return KL(self || other) in closed form; any bijection of both leaves it unchanged."""
        # KL = log(std' / std) + (std^2 + (mean - mean')^2) / (2 std'^2) - 1/2
        difference = other._log_std - self._log_std
        shift = (self._mean - other._mean) * (-other._log_std).exp()
        terms = difference + 0.5 * ((-2.0 * difference).exp() + shift.square() - 1.0)
        return terms.sum(dim=-1)


class SquashedGaussian(Gaussian):
    """Gaussians of which some pass tanh into bounds. Rows hold u, densities are of a.

    The entropy has no closed form: Gauss-Hermite quadrature computes it.
    """

    def __init__(
        self, mean: torch.Tensor, log_std: torch.Tensor, *, bounds: SquashedBounds
    ) -> None:
        super().__init__(mean, log_std)
        self._bounds = bounds

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log density of mid + half tanh(u), for u of float32 [N, C]."""
        # log p(a) = log N(u) - sum log half - sum log(1 - tanh(u)^2)
        bounds = self._bounds
        stretch = bounds.squashed * log_tanh_slope(action) + bounds.log_half
        return super().log_prob(action) - stretch.sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Return the entropy, within 0.002 per number of deviation up to 2."""
        # H = H(N) + sum log half + E[log(1 - tanh(u)^2)], E[f(u)] = sum_q w_q f(mean + std x_q):
        # quadrature needs no random numbers and has an exact gradient.
        bounds = self._bounds
        std = self._log_std.exp().unsqueeze(-1)
        slopes = log_tanh_slope(self._mean.unsqueeze(-1) + std * bounds.nodes)
        stretch = bounds.squashed * (slopes * bounds.node_weights).sum(dim=-1) + bounds.log_half
        return super().entropy() + stretch.sum(dim=-1)


def log_tanh_slope(u: torch.Tensor) -> torch.Tensor:
    """Return log(1 - tanh(u)^2), exact to rounding however far out. Any shape."""
    # 1 - tanh(u)^2 = 4 / (e^u + e^-u)^2, so the log is 2 (log 2 - u - softplus(-2 u)).
    return 2.0 * (LOG_TWO - u - functional.softplus(-2.0 * u))


class SquashedBounds(nn.Module):
    """Constants that all squashed Gaussians of an action space share.

    Attributes:
        squashed: 1 for numbers that pass tanh, 0 for the others. float32 [C].
        log_half: Logarithm of half of each squashed number's range, 0 for the others and where the
            range is empty. float32 [C].
        nodes: Nodes of the quadrature for a standard Gaussian. float32 [Q].
        node_weights: Weights of the nodes; they sum to 1. float32 [Q].
    """

    squashed: torch.Tensor
    log_half: torch.Tensor
    nodes: torch.Tensor
    node_weights: torch.Tensor

    def __init__(self, action: ActionLayout) -> None:
        super().__init__()
        squashed = action.squashed
        # Halved first: the difference of the bounds may exceed a float.
        half = np.array(action.high) / 2.0 - np.array(action.low) / 2.0
        # log 0 of an empty range would be -inf.
        stretched = squashed & (half > 0.0)
        log_half = np.log(np.where(stretched, half, 1.0))
        nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
        for name, values in (
            ("squashed", squashed),
            ("log_half", log_half),
            ("nodes", nodes),
            # hermegauss has the weight exp(-x^2 / 2), whose integral is sqrt(2 pi) and not 1.
            ("node_weights", weights / weights.sum()),
        ):
            tensor = torch.from_numpy(values.astype(np.float32))
            # A function of the action space, so not part of a policy's weights.
            self.register_buffer(name, tensor, persistent=False)
