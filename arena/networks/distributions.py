"""Action distributions made from a policy's parameters, for any action space.

Rows of actions are those of `arena.envs.spaces.actions.ActionLayout`: the choices of all branches,
then the continuous numbers as drawn, before they are squashed or clipped into their bounds.

Shapes: N rows, n logits of all branches, B branches, W choices of the widest one, C continuous
numbers, P = n + 2 C parameters.
"""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import nn

from arena.envs.spaces.actions import ActionLayout
from arena.networks import heads
from arena.networks.gaussians import Gaussian, SquashedBounds, SquashedGaussian


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
    """Choice among n, by the functions of `arena.networks.heads`; over the last axis of
    any tensor.
    """

    def __init__(self, masked_logits: torch.Tensor) -> None:
        self._logits = masked_logits
        self._log_probs: torch.Tensor | None = None

    @property
    def log_probs(self) -> torch.Tensor:
        """Log-probabilities of all choices; computed once, and not for mere sampling. [..., n]."""
        if self._log_probs is None:
            self._log_probs = heads.masked_log_probs(self._logits, None)
        return self._log_probs

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample choices, int64 [...]."""
        return heads.sample(self._logits, generator=generator)

    def greedy(self) -> torch.Tensor:
        """Return the likeliest choices, int64 [...]."""
        return heads.greedy(self._logits, None)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of int64 [...]."""
        return heads.action_log_probs(self.log_probs, action)

    def entropy(self) -> torch.Tensor:
        """Return the entropy; see `heads.entropy`."""
        return heads.entropy(self.log_probs)

    def divergence(self, other: Self) -> torch.Tensor:
        """Return KL(self || other). Illegal choices (the same in both) add exactly 0."""
        # KL(p || q) = sum p (log p - log q)
        difference = self.log_probs - other.log_probs
        return (self.log_probs.exp() * difference).sum(dim=-1)


class Branches:
    """Independent choices, one per branch. Rows are float32 [N, B] of exact integers."""

    def __init__(self, masked_logits: torch.Tensor) -> None:
        """Store masked logits [N, B, W]; padding is at the dtype's minimum."""
        # Padded to the widest branch, so that any number of them takes the same few operations.
        self._each = Categorical(masked_logits)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Sample rows, float32 [N, B]."""
        # Exact: float32 holds integers up to 2**24.
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
        # log p(c, x) = log p(c) + log p(x), as they are independent
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
        # Not persistent: the buffer follows from the action space and is no part of a policy's
        # weights.
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
            return Categorical(heads.mask_logits(parameters, action_mask))
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
        masked = heads.mask_logits(logits, action_mask)
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
