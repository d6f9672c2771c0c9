"""Encoders from a flattened observation to features.

Pictures: Mnih et al., "Human-level control through deep reinforcement learning" (Nature 2015), and
Espeholt et al., "IMPALA" (ICML 2018), figure 3, with as many halvings as the size needs; for 84 x
84 they equal the papers. Boards of any size keep their cells. Layers begin with orthogonal weights:
Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
(ICLR 2014).
Shapes: N rows, F numbers of a flattened observation, C channels, H height, W width.

Tests: `tests/arena/networks/test_actor_critic.py`, `tests/arena/networks/test_encoders.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.errors import ConfigError
from arena.networks.planes import PIXEL_SCALE, Planes, convolved_parts, is_image, is_picture
from arena.processes.settings import SETTINGS
from arena.resolve import resolve
from arena.spaces import Leaf, ObservationLayout
from arena.users_code import pass_interrupt, raised

TRUNK_GAIN = math.sqrt(2.0)
"""Gain that keeps the variance of activations through a ReLU."""

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


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

NUM_PROBED = 2


def fill(layer: Layer, *, gain: float, generator: torch.Generator) -> Layer:
    """Initialize a layer on the CPU.

    Args:
        layer: Layer on the device ``meta``: made elsewhere, it would draw from the global
            generator.
        gain: Length of each row (or column) of the weights, taken as a matrix of outputs by inputs.
        generator: The only source of randomness.
    """
    made = layer.to_empty(device="cpu")
    nn.init.orthogonal_(made.weight, gain, generator=generator)
    if made.bias is not None:
        nn.init.zeros_(made.bias)
    return made


def make_linear(
    in_features: int, out_features: int, *, gain: float, generator: torch.Generator
) -> nn.Linear:
    """Make a linear layer with orthogonal weights and zero bias, drawn from ``generator`` alone."""
    layer = nn.Linear(in_features, out_features, device="meta")
    return fill(layer, gain=gain, generator=generator)


def make_mlp(
    num_features: int, hidden_sizes: Sequence[int], *, generator: torch.Generator
) -> nn.Sequential:
    """Make linear layers, each with a ReLU. [N, F] to [N, hidden_sizes[-1]]; identity
    without any.
    """
    layers: list[nn.Module] = []
    in_features = num_features
    for out_features in hidden_sizes:
        layers.append(make_linear(in_features, out_features, gain=TRUNK_GAIN, generator=generator))
        # A linear layer needs its input for the gradient, not its output, so ReLU can work in
        # place.
        layers.append(nn.ReLU(inplace=True))
        in_features = out_features
    return nn.Sequential(*layers)


def make_encoder(
    network: NetworkConfig, observation: ObservationLayout, *, generator: torch.Generator
) -> tuple[nn.Module | None, int]:
    """Make the module before the hidden layers; also return the number of its features.

    Args:
        network: Configuration with ``encoder`` and ``channels``.
        observation: Layout of the observation.
        generator: The only source of randomness.

    Returns:
        A module, of rows (any dtype) [N, F] to float32 [N, features]; None where the hidden layers
            take rows unchanged. And the number of features.

    Raises:
        ConfigError: If the configured encoder does not fit the observation or cannot be made.
    """
    if ":" in network.encoder:
        return make_user_encoder(network.encoder, observation, generator=generator)
    convolved = convolved_parts(network, observation)
    # Images that are not convolved still need an encoder that scales them.
    if not convolved and not any(map(is_image, observation.leaves)):
        return None, observation.size
    encoder = PartsEncoder(network, observation, convolved=convolved, generator=generator)
    return encoder, encoder.num_features


class PartsEncoder(nn.Module):
    """Encoder with separate convolutions for every image or board; other numbers pass unchanged.

    Brightnesses are scaled to [0, 1]; the features of the convolutions come first.

    Args:
        network: Configuration whose ``encoder`` names the convolutions.
        observation: Layout of the observation.
        convolved: Planes of the convolved parts, by their index among the leaves.
        generator: The only source of randomness.

    Attributes:
        num_features: Number of output features.
    """

    def __init__(
        self,
        network: NetworkConfig,
        observation: ObservationLayout,
        *,
        convolved: dict[int, Planes],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        make = make_residual_cnn if network.encoder == "residual_cnn" else make_cnn
        self.convolutions = nn.ModuleList()
        self._convolved = [(observation.leaves[at], planes) for at, planes in convolved.items()]
        self._plain = [
            leaf for at, leaf in enumerate(observation.leaves) if at not in convolved and leaf.size
        ]
        self.num_features = sum(leaf.size for leaf in self._plain)
        for leaf, planes in self._convolved:
            convolution, features = make(
                planes.channels,
                planes.height,
                planes.width,
                is_picture=is_picture(leaf, planes),
                generator=generator,
            )
            self.convolutions.append(convolution)
            self.num_features += features

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode rows. [N, F] of any dtype to [N, features]."""
        parts = [
            convolution(_arranged(_scaled(rows, leaf), planes))
            for convolution, (leaf, planes) in zip(self.convolutions, self._convolved, strict=True)
        ]
        # Plain features are cast before concatenating: under autocast the result is rounded
        # anyway, and concatenating in float32 would copy everything twice.
        dtype = parts[0].dtype if parts else torch.float32
        parts += [_scaled(rows, leaf).to(dtype) for leaf in self._plain]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _scaled(rows: torch.Tensor, leaf: Leaf) -> torch.Tensor:
    """Return a part's numbers, brightnesses scaled to [0, 1]. float32 [N, size]."""
    part = rows[:, leaf.place].float()
    return part * PIXEL_SCALE if is_image(leaf) else part


def _arranged(part: torch.Tensor, planes: Planes) -> torch.Tensor:
    """Reshape a part to planes. [N, size] to [N, C, H, W]."""
    if planes.first:
        return part.reshape(part.shape[0], planes.channels, planes.height, planes.width)
    grid = part.reshape(part.shape[0], planes.height, planes.width, planes.channels)
    return grid.permute(0, 3, 1, 2)


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
        # For 84 x 84 this gives 32 of 8 x 8 by 4, 64 of 4 x 4 by 2, 64 of 3 x 3 by 1, as in the
        # paper.
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
        # relu() copies, because the sum below needs the original planes.
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


class UserEncoder(nn.Module):
    """Wrapper of a user's module, which gets float32 rows with brightnesses scaled to [0, 1]."""

    _scale: torch.Tensor

    def __init__(self, module: nn.Module, observation: ObservationLayout) -> None:
        super().__init__()
        self.module = module
        scale = torch.ones(observation.size)
        for leaf in observation.leaves:
            if is_image(leaf):
                scale[leaf.place] = PIXEL_SCALE
        self._has_images = any(map(is_image, observation.leaves))
        self.register_buffer("_scale", scale, persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode rows. [N, F] of any dtype to [N, features]."""
        numbers = rows.float()
        features: torch.Tensor = self.module(numbers * self._scale if self._has_images else numbers)
        return features


def make_user_encoder(
    reference: str, observation: ObservationLayout, *, generator: torch.Generator
) -> tuple[UserEncoder, int]:
    """Make the module that ``package.module:Class`` names, and check its output.

    Args:
        reference: Class that is called with the `ObservationLayout`; see the README.
        observation: Layout of the observation.
        generator: Source of the seed of torch's global generator while the class is called; the
            global generator is restored afterwards.

    Raises:
        ConfigError: If there is no such class, or its module breaks a rule.
    """
    module_class = resolve(reference, launch_directory=None)
    if not callable(module_class):
        raise ConfigError(f"network.encoder {reference} must name a class, got {module_class!r}")
    # Users' layers draw from the global generator, so it is seeded from Arena's.
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            module = SETTINGS.run_with_ours(module_class, observation)
        except BaseException as error:
            pass_interrupt(error)
            # A user's class may raise anything, and only the user can fix it.
            raise ConfigError(raised(f"network.encoder {reference}: making it", error)) from error
        num_features = _num_features(reference, module)
        encoder = UserEncoder(module, observation)
        _probe(reference, encoder, size=observation.size, num_features=num_features)
    return encoder, num_features


def _num_features(reference: str, module: object) -> int:
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"network.encoder {reference} must make a torch.nn.Module, got {type(module).__name__}"
        )
    number = getattr(module, "num_features", None)
    if not isinstance(number, int) or number < 1:
        raise ConfigError(
            f"network.encoder {reference} must have an attribute num_features, an integer of at "
            f"least 1, got {number!r}"
        )
    return number


@torch.no_grad()
def _probe(reference: str, encoder: UserEncoder, *, size: int, num_features: int) -> None:
    try:
        features: object = SETTINGS.run_with_ours(encoder, torch.zeros(NUM_PROBED, size))
    except BaseException as error:
        pass_interrupt(error)
        what = f"features of {NUM_PROBED} observations of {size} numbers"
        raise ConfigError(raised(f"network.encoder {reference}: {what}", error)) from error
    shape = list(features.shape) if isinstance(features, torch.Tensor) else features
    if shape != [NUM_PROBED, num_features]:
        raise ConfigError(
            f"network.encoder {reference} must give features of shape [N, num_features], for "
            f"{NUM_PROBED} rows {[NUM_PROBED, num_features]}, got {shape}"
        )
    # Checkpoints hold only float32 tensors.
    for name, tensor in encoder.module.state_dict().items():
        if tensor.dtype != torch.float32:
            raise ConfigError(
                f"network.encoder {reference} must hold float32 alone (batch normalization does "
                f"not), got {name} of {tensor.dtype}"
            )
