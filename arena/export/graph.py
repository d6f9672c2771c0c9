"""A policy as a module with the inputs and outputs of its ONNX graph.

Normalization, masking, the greedy action and the value's units are inside. Inputs are those of
`arena.export.inputs`. Outputs are the policy's parameters and those of `arena.export.outputs`:
``logits`` float32 [N, n] of all choices side by side, illegal ones at float32's minimum; ``mean``
and ``log_std`` float32 [N, C] of continuous numbers before they are brought within their bounds;
the greedy action; ``value`` float32 [N], the expected discounted return in units of reward, unless
only a centralized critic knows it; and ``state_out`` float32 [N, H] of a recurrent policy. Choices
count from 0: `champion.py` adds the starts of an action space, which the card holds.

Shapes: N rows, F numbers of a flattened observation, n logits, C continuous numbers, H numbers of a
recurrent state.

Tests: `tests/arena/export/test_onnx.py`, `tests/arena/export/test_graph.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.export.inputs import ACTION_MASK, STATE_IN, Feeds, Flatten, input_names
from arena.export.outputs import STATE_OUT, VALUE, InUnits, action_names, parameter_names
from arena.networks.actor_critic import ActorCritic
from arena.networks.gaussians import LOG_STD_LIMIT
from arena.networks.heads import mask_logits


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
        parameters, further = _computed(network, self._flatten(feeds), feeds)
        return [
            *split_parameters(parameters, feeds.get(ACTION_MASK), action=network.action),
            *self._in_units(network.distribution(parameters, feeds.get(ACTION_MASK)).greedy()),
            *further.values(),
        ]


def _computed(
    network: ActorCritic, rows: torch.Tensor, feeds: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the policy's parameters and, by name, the value and the next state it has."""
    # Normalization is inside, so that a runtime needs none.
    normalized = network.normalize_observation(rows)
    further: dict[str, torch.Tensor] = {}
    if not network.has_value:
        if not network.state_size:
            return network.policy(normalized), {}
        parameters, further[STATE_OUT] = network.policy_step(normalized, feeds[STATE_IN])
        return parameters, further
    if network.state_size:
        parameters, value, further[STATE_OUT] = network.step(normalized, feeds[STATE_IN])
    else:
        parameters, value = network(normalized)
    # First, in the order of `output_names`.
    return parameters, {VALUE: network.return_normalizer.denormalize(value), **further}


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
    # As the distribution does before it draws: a runtime must not have to know the limit.
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
