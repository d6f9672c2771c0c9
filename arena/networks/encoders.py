"""Encoders from a flattened observation to features.

Shapes: N rows, F numbers of a flattened observation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.envs.spaces.leaves import Leaf
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.convolutions import make_cnn, make_residual_cnn
from arena.networks.initialization import TRUNK_GAIN, fill
from arena.networks.planes import PIXEL_SCALE, Planes, convolved_parts, is_image, is_picture
from arena.networks.user_encoder import make_user_encoder


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
        # inplace: a linear layer needs its input for the gradient, not its output.
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
    # Images that are not convolved are scaled by an encoder all the same.
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
        # Cast plain features to the convolutions' dtype before concatenating: under autocast the
        # result is rounded anyway, and concatenating in float32 would copy everything twice.
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
