"""A policy's network as layers in order, for ``network.js``, which computes it.

A layer is a list of its name and its sizes, and takes its numbers from the weights, float32 one
after the other, in this order. Shapes: F numbers of the row that it gets, H rows and W columns of
cells, C channels.

======================================  ============================  =============================
layer                                   it makes of a row             numbers
======================================  ============================  =============================
``normalize``, limit                    deviations, clipped           mean [F], deviation [F]
``planes``, C                           [H, W, C] to [C, H, W]        none
``convolution``, C, outputs, H, W       3 x 3, a border of zeros      weights [outputs, C, 3, 3],
                                                                      bias [outputs]
``dense``, outputs                      a linear layer                weights [outputs, F],
                                                                      bias [outputs]
``relu``                                numbers below 0 to 0          none
``residual``, layers                    itself plus these layers      those of the layers
======================================  ============================  =============================

Tests: `tests/arena/export/html/test_network.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ExportError
from arena.networks.actor_critic import ActorCritic, Critic
from arena.networks.convolutions import ResidualBlock
from arena.networks.encoders import PartsEncoder
from arena.networks.normalizers import OBSERVATION_CLIP
from arena.networks.planes import Planes, convolved_parts

Layer = tuple[list[Any], list[torch.Tensor]]
"""Name and sizes of a layer, and its numbers."""


def network_document(
    network: ActorCritic, *, config: NetworkConfig, layout: ObservationLayout
) -> dict[str, object]:
    """Return what ``network.js`` computes a network from.

    Args:
        network: Network without a core and without an agent id, on the CPU.
        config: Its configuration.
        layout: Layout of its observations, of one part.

    Returns:
        ``policy`` and ``value``, layers (null: the value is the policy's last output, or there is
            none); ``actions``, the number of logits; ``unit``, the mean and the deviation of
            returns; ``weights``, little-endian float32 in base64.

    Raises:
        ExportError: If it has a layer that is not among these.
    """
    planes = convolved_parts(config, layout).get(0)
    policy = list(_layers_of(network, network, planes=planes))
    value: list[Layer] = []
    if network.has_value and network.critic is not None:
        value = list(_layers_of(network, network.critic, planes=planes))
    numbers = torch.cat([one.flatten() for _, given in (*policy, *value) for one in given])
    unit = network.return_normalizer
    return {
        "actions": network.action.num_logits,
        "policy": [layer for layer, _ in policy],
        "value": [layer for layer, _ in value] or None,
        "unit": [unit.mean.item(), unit.deviation.item()],
        "weights": base64.b64encode(numbers.detach().numpy().astype("<f4").tobytes()).decode(),
    }


def _layers_of(
    network: ActorCritic, part: ActorCritic | Critic, *, planes: Planes | None
) -> Iterator[Layer]:
    """Yield the layers from an observation to the outputs of a part with a head."""
    if network.observation_normalizer is not None:
        yield ["normalize", OBSERVATION_CLIP], [*network.observation_normalizer.by_column()]
    if planes is not None and not planes.first:
        yield ["planes", planes.channels], []
    convolutions = part.encoder.convolutions if isinstance(part.encoder, PartsEncoder) else ()
    for module in (*convolutions, part.trunk, part.head):
        yield from _inside(module, planes)


def _inside(module: nn.Module, planes: Planes | None) -> Iterator[Layer]:
    if isinstance(module, nn.Sequential):
        for inner in module:
            yield from _inside(inner, planes)
    elif isinstance(module, nn.Linear):
        # Weight and bias, as they were registered.
        yield ["dense", module.out_features], list(module.parameters())
    elif isinstance(module, nn.ReLU):
        yield ["relu"], []
    elif planes is not None and isinstance(module, nn.Conv2d) and _keeps_cells(module):
        channels = module.in_channels, module.out_channels
        layer = ["convolution", *channels, planes.height, planes.width]
        yield layer, list(module.parameters())
    elif isinstance(module, ResidualBlock):
        relu: Layer = ["relu"], []
        layers = [relu, *_inside(module.first, planes), relu, *_inside(module.second, planes)]
        numbers = [one for _, given in layers for one in given]
        yield ["residual", [layer for layer, _ in layers]], numbers
    elif not isinstance(module, nn.Flatten):
        # A row is flat already.
        raise ExportError(f"a page has no layer for {module}")


def _keeps_cells(module: nn.Conv2d) -> bool:
    return (module.kernel_size, module.stride, module.padding) == ((3, 3), (1, 1), (1, 1))
