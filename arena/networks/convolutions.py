"""Convolutional networks for pictures and boards of any size.

Pictures: Mnih et al., "Human-level control through deep reinforcement learning" (Nature 2015), and
Espeholt et al., "IMPALA" (ICML 2018), figure 3, with as many halvings as the size needs; for 84 x
84 they equal the papers. Boards keep their cells.
Shapes: N rows, C channels, H height, W width.

Tests: `tests/arena/networks/test_encoders.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from arena.networks.initialization import TRUNK_GAIN, fill

MAX_CELLS = 144
"""Number of cells down to which pictures are halved."""

MIN_COARSE_SIDE = 20
"""Side in pixels from which pictures start in steps of four.

In steps of two, an update on 28 x 48 pixels takes ten times as long.
"""

BOARD_CHANNELS = (32, 64, 64)
RESIDUAL_CHANNELS = (16, 32)
"""Channels of the first section, and of all others."""

NUM_BOARD_SECTIONS = 3

BLOCK_GAIN = 0.5 * TRUNK_GAIN
"""Gain of a residual block's last convolution. A block then adds a quarter to the variance, so that
many blocks do not make it explode.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Layer of a convolutional network.

    Attributes:
        channels: Number of output channels.
        kernel: Height and width.
        stride: Stride in both directions.
        padding: Padding on all sides.
    """

    channels: int
    kernel: tuple[int, int]
    stride: int
    padding: int = 0

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output."""
        # floor((size + 2 padding - kernel) / stride) + 1
        sides = zip((height, width), self.kernel, strict=True)
        h, w = ((side + 2 * self.padding - k) // self.stride + 1 for side, k in sides)
        return h, w


def strided_layers(height: int, width: int) -> Iterator[Convolution]:
    """Yield the layers for a picture; kernels are never larger than the remaining picture."""

    def layer(channels: int, kernel: int, stride: int) -> Convolution:
        nonlocal height, width
        fitting = min(kernel, height), min(kernel, width)
        made = Convolution(channels=channels, kernel=fitting, stride=stride)
        height, width = made.size_after(height, width)
        return made

    if min(height, width) >= MIN_COARSE_SIDE:
        # 84 x 84: 32 of 8 x 8 by 4, 64 of 4 x 4 by 2, 64 of 3 x 3 by 1, as in the paper
        yield layer(32, 8, 4)
    while height * width > MAX_CELLS:
        yield layer(64, 4, 2)
    yield layer(64, 3, 1)


def board_layers() -> Iterator[Convolution]:
    """Yield the layers for a board of any size."""
    for channels in BOARD_CHANNELS:
        yield Convolution(channels=channels, kernel=(3, 3), stride=1, padding=1)


def make_cnn(
    channels: int, height: int, width: int, *, is_picture: bool, generator: torch.Generator
) -> tuple[nn.Sequential, int]:
    """Make convolutions with ReLUs, [N, C, H, W] to [N, features]; also return features."""
    layers: list[nn.Module] = []
    for layer in strided_layers(height, width) if is_picture else board_layers():
        layers.append(make_convolution(channels, layer, gain=TRUNK_GAIN, generator=generator))
        layers.append(nn.ReLU(inplace=True))
        channels = layer.channels
        height, width = layer.size_after(height, width)
    return nn.Sequential(*layers, nn.Flatten()), channels * height * width


def make_residual_cnn(
    channels: int, height: int, width: int, *, is_picture: bool, generator: torch.Generator
) -> tuple[nn.Sequential, int]:
    """Make IMPALA's network, [N, C, H, W] to [N, features]; also return features."""
    layers: list[nn.Module] = []
    for out_channels in _section_channels(height, width, is_picture=is_picture):
        layers.append(_same_size(channels, out_channels, gain=TRUNK_GAIN, generator=generator))
        if is_picture:
            # floor((side + 2 - 3) / 2) + 1 = ceil(side / 2)
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
            height, width = math.ceil(height / 2), math.ceil(width / 2)
        layers += [ResidualBlock(out_channels, generator=generator) for _ in range(2)]
        channels = out_channels
    layers += [nn.ReLU(inplace=True), nn.Flatten()]
    return nn.Sequential(*layers), channels * height * width


def _section_channels(height: int, width: int, *, is_picture: bool) -> Sequence[int]:
    first, other = RESIDUAL_CHANNELS
    if not is_picture:
        return [first, *[other] * (NUM_BOARD_SECTIONS - 1)]
    sections = [first]
    height, width = math.ceil(height / 2), math.ceil(width / 2)
    while height * width > MAX_CELLS:
        sections.append(other)
        height, width = math.ceil(height / 2), math.ceil(width / 2)
    return sections


class ResidualBlock(nn.Module):
    """Residual block x + convolution(relu(convolution(relu(x)))), all of one size."""

    def __init__(self, channels: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.first = _same_size(channels, channels, gain=TRUNK_GAIN, generator=generator)
        self.second = _same_size(channels, channels, gain=BLOCK_GAIN, generator=generator)

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Add the block's output. float32 [N, C, H, W] to the same."""
        # relu() copies: the sum below needs planes as they were.
        change: torch.Tensor = self.second(self.first(planes.relu()).relu())
        return planes + change


def _same_size(
    in_channels: int, out_channels: int, *, gain: float, generator: torch.Generator
) -> nn.Conv2d:
    layer = Convolution(channels=out_channels, kernel=(3, 3), stride=1, padding=1)
    return make_convolution(in_channels, layer, gain=gain, generator=generator)


def make_convolution(
    in_channels: int, layer: Convolution, *, gain: float, generator: torch.Generator
) -> nn.Conv2d:
    """Make a convolution with orthogonal weights and zero bias, drawn from ``generator`` alone."""
    made = nn.Conv2d(
        in_channels,
        layer.channels,
        layer.kernel,
        stride=layer.stride,
        padding=layer.padding,
        device="meta",
    )
    return fill(made, gain=gain, generator=generator)
