"""A policy as a module with the inputs and outputs of its ONNX graph.

Normalization, masking, the greedy action and the value's units are inside.

Inputs are each part of an observation as the environment gives it, as float32. An observation that
is no Dict or Tuple is the input ``observation``; of others each part is an input
``observation.<key>``, nested keys joined by dots. ``agent_id``, int64 [N], is the place of the
deciding agent among those of the population. ``state_in``, float32 [N, H], is the recurrent state:
zeros at the start of an episode, then ``state_out`` of the agent's previous decision.

Outputs are the policy's parameters: ``logits`` float32 [N, n] of all choices side by side, illegal
ones at float32's minimum; ``mean`` and ``log_std`` float32 [N, C] of continuous numbers before they
are brought within their bounds; the greedy action; ``value`` float32 [N], the expected discounted
return in units of reward, unless only a centralized critic knows it; and ``state_out`` float32
[N, H] of a recurrent policy. An action that is no Dict or Tuple is the output ``action``; of others
each part is an output ``action.<key>``. Choices are int64 [N, ...] and count from 0: `champion.py`
adds the starts of an action space, which the card holds. Numbers are float32 [N, ...], each in the
shape of its space and within its bounds.

Shapes: N rows, F numbers of a flattened observation, n logits, k categories of a part, C continuous
numbers, K numbers of an action's row, H numbers of a recurrent state.

Tests: `tests/arena/export/test_onnx.py`,
`tests/arena/export/test_spaces.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from arena.errors import ExportError
from arena.networks.actor_critic import ActorCritic
from arena.networks.distributions import LOG_STD_LIMIT, mask_logits
from arena.spaces import UINT8, ActionLayout, Leaf, ObservationLayout, is_agent_id, unflattened

OBSERVATION = "observation"
AGENT_ID = "agent_id"
STATE_IN = "state_in"
ACTION_MASK = "action_mask"

Feeds = dict[str, npt.NDArray[Any]]
"""Arrays by the names of a graph's inputs."""


ACTION = "action"

LOGITS = "logits"

MEAN = "mean"

LOG_STD = "log_std"

VALUE = "value"

STATE_OUT = "state_out"


def input_names(layout: ObservationLayout) -> tuple[str, ...]:
    """Return the name of each leaf's input.

    Raises:
        ExportError: If two are equal, because of dots in the keys of a Dict.
    """
    return unique_names(
        [AGENT_ID if is_agent_id(leaf) else leaf.name_in(OBSERVATION) for leaf in layout.leaves]
    )


def unique_names(names: list[str]) -> tuple[str, ...]:
    """Check that names of inputs or outputs differ, and return them.

    Raises:
        ExportError: If two are equal.
    """
    for name in names:
        if names.count(name) > 1:
            raise ExportError(f"two parts of a space would both be {name}: keys must have no dots")
    return tuple(names)


class Flatten(nn.Module):
    """Module that flattens a graph's inputs to rows [N, F], as learners flatten observations.

    Args:
        layout: Layout of the rows.
    """

    def __init__(self, layout: ObservationLayout) -> None:
        super().__init__()
        self._leaves = layout.leaves
        self._names = input_names(layout)
        self._one_hots = nn.ModuleList(
            nn.Identity() if leaf.kind in ("Box", "MultiBinary") else _OneHots(leaf)
            for leaf in layout.leaves
        )

    def forward(self, feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Flatten inputs to float32 [N, F]."""
        parts = []
        for name, leaf, one_hots in zip(self._names, self._leaves, self._one_hots, strict=True):
            # Inputs are cast to float32, because the network scales images itself.
            values = feeds[name].float()
            # A number without axes, [N], becomes a column [N, 1].
            parts.append(one_hots(values.flatten(1) if leaf.shape else values.unsqueeze(1)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _OneHots(nn.Module):
    """Module from choices float32 [N, k] to as many one-hots side by side, float32 [N, n]."""

    _category: torch.Tensor
    _choice: torch.Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        choices = zip(leaf.starts, leaf.choices, strict=True)
        # Column j of the one-hots is 1 where the number at category[j] is choice[j].
        known = [(at, start + c) for at, (start, n) in enumerate(choices) for c in range(n)]
        category, choice = [at for at, _ in known], [number for _, number in known]
        self.register_buffer("_category", torch.tensor(category, dtype=torch.int64))
        self.register_buffer("_choice", torch.tensor(choice, dtype=torch.float32))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values.index_select(1, self._category) == self._choice).float()


def feeds_of(rows: torch.Tensor, layout: ObservationLayout) -> Feeds:
    """Undo `Flatten`.

    Args:
        rows: Rows on the CPU. [N, F].
        layout: Layout of the rows.
    """
    flat = rows.numpy()
    return {
        name: unflattened(leaf, flat[:, leaf.place]).astype(_dtype(leaf))
        for name, leaf in zip(input_names(layout), layout.leaves, strict=True)
    }


def random_feeds(layout: ObservationLayout, num_rows: int, *, rng: np.random.Generator) -> Feeds:
    """Return random observations as inputs of a graph."""
    return {
        name: _random(leaf, num_rows, rng=rng).astype(_dtype(leaf))
        for name, leaf in zip(input_names(layout), layout.leaves, strict=True)
    }


def _random(leaf: Leaf, num_rows: int, *, rng: np.random.Generator) -> npt.NDArray[Any]:
    if leaf.is_box:
        shape = (num_rows, *leaf.shape)
        is_bytes = leaf.dtype == UINT8
        return rng.integers(256, size=shape) if is_bytes else rng.normal(scale=2.0, size=shape)
    starts, choices = np.array(leaf.starts, dtype=np.int64), np.array(leaf.choices, dtype=np.int64)
    drawn = rng.integers(starts, starts + choices, size=(num_rows, len(choices)))
    return drawn.reshape(num_rows, *leaf.shape)


def _dtype(leaf: Leaf) -> type[np.generic]:
    # An environment's observations are float32; the agent id is Arena's own.
    return np.int64 if is_agent_id(leaf) else np.float32


class PolicyGraph(nn.Module):
    """Module that is exported.

    Args:
        network: Policy's network.
        layout: Layout of its observations.
    """

    def __init__(self, network: ActorCritic, layout: ObservationLayout) -> None:
        super().__init__()
        self._network = network
        self._flatten = Flatten(layout)
        self._in_units = InUnits(network.action)

    def forward(self, feeds: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs, in the order of `output_names`."""
        network = self._network
        # Normalization is part of the graph, so a runtime needs none.
        parameters, value, state = network.judge(self._flatten(feeds), feeds.get(STATE_IN))
        return [
            *split_parameters(parameters, feeds.get(ACTION_MASK), action=network.action),
            *self._in_units(network.distribution(parameters, feeds.get(ACTION_MASK)).greedy()),
            *(further for further in (value, state) if further is not None),
        ]


def output_names(network: ActorCritic) -> tuple[str, ...]:
    """Return the outputs of a network's graph.

    Raises:
        ExportError: If two have the same name.
    """
    value = (VALUE,) if network.has_value else ()
    state = (STATE_OUT,) if network.state_size else ()
    return (*parameter_names(network.action), *action_names(network.action), *value, *state)


def split_parameters(
    parameters: torch.Tensor, action_mask: torch.Tensor | None, *, action: ActionLayout
) -> list[torch.Tensor]:
    """Return the outputs that are a policy's parameters, in the order of `parameter_names`.

    Args:
        parameters: Parameters as from `ActorCritic.policy`.
        action_mask: True for legal choices. bool [N, n], or None.
        action: Layout of the actions.
    """
    if not action.num_continuous:
        return [mask_logits(parameters, action_mask)]
    sizes = [action.num_logits, action.num_continuous, action.num_continuous]
    logits, mean, log_std = torch.split(parameters, sizes, dim=1)
    # The graph clamps as the distribution does before it samples, so that a runtime need not know
    # the limit.
    numbers = [mean, log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)]
    return [mask_logits(logits, action_mask), *numbers] if action.branches else numbers


@dataclass(frozen=True, slots=True)
class Node:
    """Input or output of a session.

    Attributes:
        name: Name.
        shape: Lengths of its axes, the batch by name; empty where nobody asks for them.
    """

    name: str
    shape: tuple[str | int, ...] = ()


class TorchSession:
    """A policy's network with the methods of an onnxruntime session that `champion.py` calls.

    It gives what the policy's export would, without the export; it has no output ``action``.

    Args:
        network: Policy's network, on the CPU; not changed.
        layout: Layout of its observations.
        has_mask: Whether the environment has action masks.
    """

    def __init__(self, network: ActorCritic, *, layout: ObservationLayout, has_mask: bool) -> None:
        self.network = network
        self._graph = PolicyGraph(network, layout).eval()
        self._inputs = [Node(name) for name in input_names(layout)]
        if network.state_size:
            self._inputs.append(Node(STATE_IN, ("batch", network.state_size)))
        if has_mask:
            self._inputs.append(Node(ACTION_MASK))
        actions = action_names(network.action)
        self._outputs = [Node(n) for n in output_names(network) if n not in actions]

    def get_inputs(self) -> list[Node]:
        """Return the inputs."""
        return self._inputs

    def get_outputs(self) -> list[Node]:
        """Return the outputs."""
        return self._outputs

    @torch.inference_mode()
    def run(self, names: Sequence[str], feeds: Feeds) -> list[npt.NDArray[Any]]:
        """Return some outputs for arrays by the names of the inputs."""
        inputs = {name: torch.from_numpy(values) for name, values in feeds.items()}
        outputs = dict(zip(output_names(self.network), self._graph(inputs), strict=True))
        return [outputs[name].numpy() for name in names]


def action_names(action: ActionLayout) -> tuple[str, ...]:
    """Return the name of each leaf's output.

    Raises:
        ExportError: If two are equal, because of dots in the keys of a Dict.
    """
    return unique_names([leaf.name_in(ACTION) for leaf in action.leaves])


def parameter_names(action: ActionLayout) -> tuple[str, ...]:
    """Return the outputs that are the policy's parameters, in the order of the parameters."""
    logits = (LOGITS,) if action.branches else ()
    return (*logits, MEAN, LOG_STD) if action.num_continuous else logits


class InUnits(nn.Module):
    """Module from rows of actions to the environment's; `ActionLayout.to_environment` in torch.

    Args:
        action: Layout of the rows.
    """

    _low: torch.Tensor
    _high: torch.Tensor
    _squashed: torch.Tensor

    def __init__(self, action: ActionLayout) -> None:
        super().__init__()
        self._action = action
        self._num_branches = len(action.branches)
        self.register_buffer("_low", torch.tensor(action.low, dtype=torch.float32))
        self.register_buffer("_high", torch.tensor(action.high, dtype=torch.float32))
        self.register_buffer("_squashed", torch.from_numpy(action.squashed))

    def forward(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return one tensor per leaf, int64 [N] or float32 [N, K]."""
        # The row of a single Discrete is its choice, int64 [N].
        if self._action.is_discrete:
            return [rows]
        numbers = self._within_bounds(rows[:, self._num_branches :])
        return [self._given(leaf, rows, numbers) for leaf in self._action.leaves]

    def _given(self, leaf: Leaf, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if leaf.is_box:
            first = leaf.offset - self._num_branches
            values = numbers[:, first : first + leaf.size]
            # `ActionLayout.to_environment` rounds a Box of integers, too.
            values = values.round() if leaf.dtype.kind in "iub" else values
        else:
            values = rows[:, leaf.place].long()
        # [N, size] -> [N, ...], the shape of the space
        return values.reshape(-1, *leaf.shape)

    def _within_bounds(self, drawn: torch.Tensor) -> torch.Tensor:
        if not self._action.num_continuous:
            return drawn
        low, high, squashed = self._low, self._high, self._squashed
        # Without a bound nothing is squashed, but the unused branch must not give a NaN.
        at, to = torch.where(squashed, low, -1.0), torch.where(squashed, high, 1.0)
        # Bounds are halved first, because their sum and difference may overflow.
        within = at / 2 + to / 2 + (to / 2 - at / 2) * torch.tanh(drawn)
        # Numbers are clamped after squashing, too, because rounding may exceed the bounds.
        return torch.where(squashed, within, drawn).maximum(low).minimum(high)
