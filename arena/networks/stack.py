"""Stacks of frozen policies: K opponents act in one call.

Every layer is one batched product with parameters [K, out, in], so a call costs about as much as
one network with as many rows. Shapes: K policies, N rows, M rows of the policy with most of them, F
numbers of a flattened observation, n logits, O outputs: logits and means.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from arena.networks.actor_critic import OBSERVATION_CLIP
from arena.networks.distributions import Distribution, mask_logits
from arena.networks.frozen import FrozenPolicy

MAX_PADDING = 3
"""Limit of the factor by which padding to equal numbers of rows may multiply them."""

ROWS_AT_ONCE = 1024
"""Rows per product: activations then stay in a core's cache, and malloc keeps their memory."""


def stack_key(policy: FrozenPolicy) -> Hashable:
    """Return a key that is equal for policies that fit into one stack.

    It covers architecture, actions, device and greediness. A policy with an encoder (convolutions,
    a user's module) or a recurrent core has a unique key: its products are large enough for a call
    of their own.
    """
    network = policy.network
    if network.encoder is not None or network.state_size:
        return policy
    tensors = network.state_dict()
    # The names distinguish networks with and without a normalizer or a separate value.
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in tensors.items())
    return shapes, network.action, str(next(iter(tensors.values())).device), policy.greedy


MIN_ROUNDED = 8
"""Number of policies below which rounding to bfloat16 costs more than it saves."""


class PolicyStack:
    """K frozen policies of one architecture, in a copy of their weights.

    Keeps no state between calls, so several threads may use one.
    """

    def __init__(
        self, policies: Sequence[FrozenPolicy], *, product_dtype: torch.dtype = torch.float32
    ) -> None:
        """Copy the policies' weights.

        Args:
            policies: One or more policies.
            product_dtype: Dtype of weights and features between the layers, from MIN_ROUNDED
                policies on. So many weights do not fit into a core's cache, and bfloat16 halves the
                bytes fetched. Evaluation plays in float32: the rated policy is the exported one.

        Raises:
            ValueError: If there is no policy, or they differ in architecture, device or greediness,
                or have encoders or recurrent cores.
        """
        if len({stack_key(policy) for policy in policies}) != 1:
            raise ValueError(
                "a stack needs policies of one architecture, device and greediness, "
                f"got {len({stack_key(policy) for policy in policies})} kinds"
            )
        networks = [policy.network for policy in policies]
        if networks[0].encoder is not None or networks[0].state_size:
            raise ValueError("a stack needs policies without an encoder and a memory, got one")
        normalizers = [
            network.observation_normalizer
            for network in networks
            if network.observation_normalizer is not None
        ]
        self._greedy = policies[0].greedy
        self._action = networks[0].action
        self._distribution = networks[0].distribution
        # Statistics cover whole rows: an agent id (a one-hot, below any clip) has mean 0 and
        # deviation 1. They are not folded into the first layer, because rows are clipped in
        # between.
        self._normalizer = None
        if normalizers:
            columns = [normalizer.by_column() for normalizer in normalizers]
            mean, deviation = (torch.stack(part)[:, None] for part in zip(*columns, strict=True))
            self._normalizer = mean, deviation
        trunks = zip(*(_linear_layers(network.trunk) for network in networks), strict=True)
        # Few policies fit into a core's cache even in float32.
        if len(policies) < MIN_ROUNDED:
            product_dtype = torch.float32
        self._product_dtype = product_dtype
        self._trunk = [_stacked(layers, dtype=product_dtype) for layers in trunks]
        # Playing needs no value, so it is left out where it is the head's last output.
        weight, bias = _stacked([network.head for network in networks], dtype=product_dtype)
        self._num_outputs = self._action.num_logits + self._action.num_continuous
        outputs = slice(self._num_outputs)
        self._head = weight[:, outputs].contiguous(), bias[:, :, outputs].contiguous()
        # Deviations are weights, too, but no part of a product.
        log_stds = [network.log_std.detach() for network in networks if network.log_std is not None]
        self._log_std = torch.stack(log_stds) if log_stds else None
        self._num_policies = len(policies)
        self._index = np.arange(len(policies))[:, None]

    def __len__(self) -> int:
        """Return K."""
        return self._num_policies

    @torch.inference_mode()
    def logits(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None = None,
        *,
        player: torch.Tensor,
    ) -> torch.Tensor:
        """Return masked logits of each row by its policy. float32 [N, n]; arguments as in `act`."""
        outputs = self._outputs(observation, player=player)
        return mask_logits(outputs[:, : self._action.num_logits], action_mask)

    @torch.inference_mode()
    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        player: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Choose one action per row.

        Args:
            observation: Flattened observations, in any order of policies. [N, F].
            action_mask: True for legal choices. bool [N, n], or None.
            player: Policy that decides each row, in [0, K). int64 [N].
            generator: The only source of randomness.

        Returns:
            Rows of actions, [N] or [N, ...].
        """
        outputs = self._outputs(observation, player=player)
        if self._log_std is not None:
            # [K, C] -> [N, C]
            outputs = torch.cat([outputs, self._log_std.index_select(0, player)], dim=1)
        distribution: Distribution = self._distribution(outputs, action_mask)
        return distribution.greedy() if self._greedy else distribution.sample(generator)

    def _outputs(self, observation: torch.Tensor, *, player: torch.Tensor) -> torch.Tensor:
        """Return logits and means of each row by its policy. float32 [N, O]."""
        if not observation.is_floating_point():
            observation = observation.float()
        # For a thousand small numbers numpy takes a third to a quarter of torch's time per
        # operation.
        owner, device = player.cpu().numpy(), observation.device
        # The blocks must be complete and in order; reordering costs more than this test.
        rows_each, left_over = divmod(len(owner), self._num_policies)
        if not left_over and bool(
            (owner.reshape(self._num_policies, rows_each) == self._index).all()
        ):
            # In training and in the first step of matches, rows are in equal blocks.
            return self._forward(
                observation.view(self._num_policies, rows_each, observation.shape[1])
            )
        counts = np.bincount(owner, minlength=self._num_policies)
        busy = _busiest(counts)
        if busy:
            return self._divided(observation, player=player, busy=busy)
        row_of_place, place_of_row = _places(owner, counts=counts)
        padded = observation.index_select(0, torch.from_numpy(row_of_place).to(device))
        rows_each = len(padded) // self._num_policies
        outputs = self._forward(padded.view(self._num_policies, rows_each, observation.shape[1]))
        return outputs.index_select(0, torch.from_numpy(place_of_row).to(device))

    def _divided(
        self, observation: torch.Tensor, *, player: torch.Tensor, busy: Sequence[int]
    ) -> torch.Tensor:
        """Compute busy policies alone and the others together."""
        # The others are computed together again, because without the busy ones little is padded.
        outputs = observation.new_empty(len(observation), self._num_outputs)
        others = torch.ones(self._num_policies, dtype=torch.bool, device=observation.device)
        for k in busy:
            rows = (player == k).nonzero().squeeze(1)
            alone = observation.index_select(0, rows)[None]
            outputs.index_copy_(0, rows, self._product(alone, slice(k, k + 1)))
            others[k] = False
        rows = others.index_select(0, player).nonzero().squeeze(1)
        own, players = observation.index_select(0, rows), player.index_select(0, rows)
        return outputs.index_copy_(0, rows, self._outputs(own, player=players))

    def _forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the outputs of M rows for each policy. [K, M, F] to [K * M, O]."""
        # Rows of one product stay within ROWS_AT_ONCE, but include at least one policy.
        at_once = max(1, ROWS_AT_ONCE // max(1, observation.shape[1]))
        parts = [
            self._product(observation[start : start + at_once], slice(start, start + at_once))
            for start in range(0, self._num_policies, at_once)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _product(self, observation: torch.Tensor, policies: slice) -> torch.Tensor:
        """Return the outputs of M rows for k of the policies. [k, M, F] to [k * M, O]."""
        # Weights stay [K, out, in] and are transposed in the product, which is 10 to 20% faster
        # than [K, in, out].
        if self._normalizer is not None:
            mean, deviation = self._normalizer
            # The subtraction makes a new tensor, so that the in-place operations below keep the
            # caller's rows.
            observation = observation - mean[policies]
            observation.div_(deviation[policies]).clamp_(-OBSERVATION_CLIP, OBSERVATION_CLIP)
        features = observation.to(self._product_dtype)
        for weight, bias in self._trunk:
            features = torch.baddbmm(bias[policies], features, weight[policies].mT).relu_()
        weight, bias = self._head
        outputs = torch.baddbmm(bias[policies], features, weight[policies].mT)
        return outputs.float().flatten(0, 1)


def _busiest(counts: npt.NDArray[np.int64]) -> list[int]:
    """Return the policies to play alone, so that padding the others to equal counts stays cheap."""
    rest = counts.sum()
    # K * max is the number of rows after padding.
    if len(counts) * counts.max() <= MAX_PADDING * rest:
        return []  # This is the usual case, without a sort.
    busy: list[int] = []
    for k in np.argsort(-counts, kind="stable"):
        if len(counts) * counts[k] <= MAX_PADDING * rest:
            break
        busy.append(int(k))
        rest -= counts[k]
    return busy


def _places(
    owner: npt.NDArray[np.int64], *, counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give every policy M places, as many as the busiest one needs.

    Returns:
        Row in each place, row 0 in empty ones, int64 [K * M]; and the place of each row, int64 [N].
    """
    num_policies, most = len(counts), counts.max()
    # A stable sort of small integers is a radix sort in numpy.
    order = owner.astype(np.uint16).argsort(kind="stable")
    # The r-th row of policy k goes to place k * M + r.
    shift = np.arange(num_policies) * most - (counts.cumsum() - counts)
    place = np.arange(len(owner)) + shift.repeat(counts)
    row_of_place = np.zeros(num_policies * most, dtype=np.int64)
    # Empty places compute row 0, and their results are never read.
    row_of_place[place] = order
    place_of_row = np.empty_like(order)
    place_of_row[order] = place
    return row_of_place, place_of_row


def _linear_layers(trunk: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in trunk if isinstance(layer, nn.Linear)]


def _stacked(
    layers: Sequence[nn.Linear], *, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [K, out, in] and biases [K, 1, out], in separate memory."""
    weight = torch.stack([layer.weight for layer in layers]).detach().to(dtype)
    return weight, torch.stack([layer.bias for layer in layers]).detach().to(dtype)[:, None]
