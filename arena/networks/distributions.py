"""Action distributions made from a policy's parameters, for any action space.

Rows of actions are those of `arena.spaces.ActionLayout`: the choices of all branches,
then the continuous numbers as drawn, before they are squashed or clipped into their bounds.

Choices are drawn by adding Gumbel noise and taking the largest: Maddison, Tarlow and Minka, "A*
Sampling" (NeurIPS 2014). Their functions expect float32 logits; under autocast cast before.
Numbers are diagonal Gaussians, squashed into their bounds or not: Haarnoja et al., "Soft
Actor-Critic" (ICML 2018), appendix C. With a = mid + half tanh(u):
log p(a) = log N(u) - sum log half - sum log(1 - tanh(u)^2), and without cancellation
log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)).

Shapes: N rows, n logits of all branches, B branches, W choices of the widest one, C continuous
numbers, P = n + 2 C parameters, Q nodes of the quadrature.
"""

from __future__ import annotations

import math
from typing import Protocol, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from arena.spaces import ActionLayout

SMALLEST_UNIFORM = 2.0**-25
"""Replacement for a draw of 0, half of the next larger number that can be drawn."""


LOG_STD_LIMIT = 10.0
"""Limit of log deviations, far from a policy's needs; variance and inverse stay finite in
float32.
"""

NUM_NODES = 16
"""Nodes of the Gauss-Hermite quadrature for the entropy of a squashed Gaussian."""

LOG_TWO = math.log(2.0)

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def mask_logits(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Put illegal actions at the dtype's minimum, which is finite: infinities make the entropy NaN.

    Args:
        logits: Logits, float [N, n].
        action_mask: True for legal actions. bool [N, n], or None if all are legal.
    """
    if action_mask is None:
        return logits
    return logits.masked_fill(~action_mask, torch.finfo(logits.dtype).min)


def masked_log_probs(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Return log-probabilities of all actions. [N, n]; illegal ones stay at the dtype's minimum."""
    masked = mask_logits(logits, action_mask)
    # logsumexp is several times faster than log_softmax, whose kernel is slow for few actions.
    return masked - masked.logsumexp(dim=-1, keepdim=True)


def action_log_probs(log_probs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of one action per row. [N, n] and int64 [N] to [N]."""
    # [N, n], [N] -> [N, 1] -> [N]
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """Return the entropy in nats. [N, n] to [N]. Illegal actions add 0 times a finite number:
    exactly 0.
    """
    # H = -sum p log p
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def sample(logits: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """Draw one action per row. [N, n] to int64 [N].

    Takes masked logits, which need not be normalized. An illegal action is never drawn: the noise
    is in [-3, 17], illegal actions are at -3e38.
    """
    # Gumbel noise is G = -log(-log(U)) with U in [0, 1). The largest U is 1 - 2**-24; 0 would give
    # -inf, so that a row's only legal action would lose to an illegal one.
    uniform = torch.rand(
        logits.shape, generator=generator, device=logits.device, dtype=logits.dtype
    ).clamp_(min=SMALLEST_UNIFORM)
    # argmax_a (z_a + G_a) is distributed as softmax(z), so no normalization is needed.
    return (logits - uniform.log_().neg_().log_()).argmax(dim=-1)


def greedy(logits: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
    """Return the likeliest legal action of each row, the first of equals. [N, n] to int64 [N]."""
    return mask_logits(logits, action_mask).argmax(dim=-1)


class Distribution(Protocol):
    """One distribution per row. All results are float32 [N], except rows of actions."""

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Draw one action per row, the generator being the only source of randomness."""

    def greedy(self) -> torch.Tensor:
        """Return the likeliest choice of each branch, the first of equals; the Gaussians' means."""

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-probability (density, where anything is continuous) of an action per row.
        [N].
        """

    def entropy(self) -> torch.Tensor:
        """Return the entropy in nats of the environment's actions; of clipped Gaussians before the
        clip. [N].
        """

    def divergence(self, other: Self) -> torch.Tensor:
        """Return KL(self || other), where ``other`` has the same maker. [N]."""


class Categorical:
    """Choice among n, by the functions of `arena.networks.distributions`; over the last axis of
    any tensor.
    """

    def __init__(self, masked_logits: torch.Tensor) -> None:
        self._logits = masked_logits
        self._log_probs: torch.Tensor | None = None

    @property
    def log_probs(self) -> torch.Tensor:
        """Log-probabilities of all choices; computed once, and not for mere sampling. [..., n]."""
        if self._log_probs is None:
            self._log_probs = masked_log_probs(self._logits, None)
        return self._log_probs

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample choices, int64 [...]."""
        return sample(self._logits, generator=generator)

    def greedy(self) -> torch.Tensor:
        """Return the likeliest choices, int64 [...]."""
        return greedy(self._logits, None)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of int64 [...]."""
        return action_log_probs(self.log_probs, action)

    def entropy(self) -> torch.Tensor:
        """Return the entropy; see `entropy`."""
        return entropy(self.log_probs)

    def divergence(self, other: Self) -> torch.Tensor:
        """Return KL(self || other). Illegal choices (the same in both) add exactly 0."""
        # KL(p || q) = sum p (log p - log q)
        difference = self.log_probs - other.log_probs
        return (self.log_probs.exp() * difference).sum(dim=-1)


class Branches:
    """Independent choices, one per branch. Rows are float32 [N, B] of exact integers."""

    def __init__(self, masked_logits: torch.Tensor) -> None:
        """Store masked logits [N, B, W]; padding is at the dtype's minimum."""
        # Branches are padded to the widest one, so that any number of them takes the same few
        # operations.
        self._each = Categorical(masked_logits)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample rows, float32 [N, B]."""
        # The cast is exact, because float32 holds integers up to 2**24.
        return self._each.sample(generator).float()

    def greedy(self) -> torch.Tensor:
        """Return the likeliest rows, float32 [N, B]."""
        return self._each.greedy().float()

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of float32 [N, B]: the sum over the branches."""
        return self._each.log_prob(action.long()).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Return the entropy: the sum over the branches."""
        return self._each.entropy().sum(dim=-1)

    def divergence(self, other: Self) -> torch.Tensor:
        """Return KL(self || other): the sum over the branches."""
        return self._each.divergence(other._each).sum(dim=-1)


class Joint:
    """Choices and numbers, independent of each other. Rows are float32 [N, B + C]."""

    def __init__(self, choices: Branches, numbers: Gaussian, *, num_branches: int) -> None:
        self._choices = choices
        self._numbers = numbers
        self._num_branches = num_branches

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample rows, float32 [N, B + C]; the choices are drawn first."""
        return torch.cat([self._choices.sample(generator), self._numbers.sample(generator)], dim=1)

    def greedy(self) -> torch.Tensor:
        """Return the likeliest rows, float32 [N, B + C]."""
        return torch.cat([self._choices.greedy(), self._numbers.greedy()], dim=1)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of float32 [N, B + C]."""
        at = self._num_branches
        # log p(c, x) = log p(c) + log p(x), because choices and numbers are independent.
        return self._choices.log_prob(action[:, :at]) + self._numbers.log_prob(action[:, at:])

    def entropy(self) -> torch.Tensor:
        """Return the sum of both entropies."""
        return self._choices.entropy() + self._numbers.entropy()

    def divergence(self, other: Self) -> torch.Tensor:
        """Return the sum of both divergences."""
        return self._choices.divergence(other._choices) + self._numbers.divergence(other._numbers)


class DistributionMaker(nn.Module):
    """Maker of the distribution of a policy's actions from its parameters.

    A module without weights, so that its buffers move to a device with its network.

    Args:
        action: Layout of the actions.

    Attributes:
        action: Layout of the actions.
    """

    _places: torch.Tensor

    def __init__(self, action: ActionLayout) -> None:
        super().__init__()
        self.action = action
        self._is_discrete = action.is_discrete
        # Branches of equal width need no padding.
        self._widest = max(action.branches, default=0)
        self._is_even = len(set(action.branches)) <= 1
        starts = [branch * self._widest for branch in range(len(action.branches))]
        places = [
            torch.arange(start, start + number)
            for start, number in zip(starts, action.branches, strict=True)
        ]
        empty = torch.empty(0, dtype=torch.int64)
        # The buffer is not persistent, because it follows from the action space and is no part of
        # the weights.
        self.register_buffer("_places", torch.cat([empty, *places]), persistent=False)
        self._bounds = SquashedBounds(action) if action.squashed.any() else None

    @property
    def num_parameters(self) -> int:
        """P: the logits of all branches side by side, then means, then logarithms of deviations."""
        return self.action.num_logits + 2 * self.action.num_continuous

    def __call__(self, parameters: torch.Tensor, action_mask: torch.Tensor | None) -> Distribution:
        """Return one distribution per row.

        Args:
            parameters: Parameters float32 [N, P].
            action_mask: True for legal choices, of all branches side by side; at least one in each.
                bool [N, n], or None.
        """
        if self._is_discrete:
            return Categorical(mask_logits(parameters, action_mask))
        action = self.action
        if not action.num_continuous:
            return self._choices(parameters, action_mask)
        # parameters = [logits (n) | means (C) | log deviations (C)]
        first, middle = action.num_logits, action.num_logits + action.num_continuous
        numbers = self._numbers(parameters[:, first:middle], parameters[:, middle:])
        if not action.branches:
            return numbers
        choices = self._choices(parameters[:, :first], action_mask)
        return Joint(choices, numbers, num_branches=len(action.branches))

    def _choices(self, logits: torch.Tensor, action_mask: torch.Tensor | None) -> Branches:
        masked = mask_logits(logits, action_mask)
        shape = (masked.shape[0], len(self.action.branches), self._widest)
        if not self._is_even:
            # Padding at the minimum has probability 0 and adds nothing to the entropy.
            smallest = torch.finfo(masked.dtype).min
            padded = masked.new_full((masked.shape[0], shape[1] * shape[2]), smallest)
            masked = padded.index_copy(1, self._places, masked)
        return Branches(masked.reshape(shape))

    def _numbers(self, means: torch.Tensor, log_stds: torch.Tensor) -> Gaussian:
        if self._bounds is None:
            return Gaussian(means, log_stds)
        return SquashedGaussian(means, log_stds, bounds=self._bounds)


def make_distribution(action: ActionLayout) -> DistributionMaker:
    """Return the maker of distributions for an action space."""
    return DistributionMaker(action)


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
        # H = H(N) + sum log half + E[log(1 - tanh(u)^2)], E[f(u)] = sum_q w_q f(mean + std x_q).
        # Quadrature needs no random numbers and has an exact gradient.
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
        # Bounds are halved first, because their difference may overflow.
        half = np.array(action.high) / 2.0 - np.array(action.low) / 2.0
        # Without this, log 0 of an empty range would be -inf.
        stretched = squashed & (half > 0.0)
        log_half = np.log(np.where(stretched, half, 1.0))
        nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
        for name, values in (
            ("squashed", squashed),
            ("log_half", log_half),
            ("nodes", nodes),
            # hermegauss has the weight exp(-x^2 / 2), whose integral is sqrt(2 pi) instead of 1.
            ("node_weights", weights / weights.sum()),
        ):
            tensor = torch.from_numpy(values.astype(np.float32))
            # The constants follow from the action space, so they are no part of a policy's
            # weights.
            self.register_buffer(name, tensor, persistent=False)
