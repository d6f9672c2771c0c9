"""Parts of an observation with height and width, and the place of their channels.

Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arena.config import Channels, NetworkConfig
from arena.errors import ConfigError
from arena.spaces import Leaf, ObservationLayout

MIN_IMAGE_SIDE = 8
"""Side below which an image is not worth a convolution."""

MIN_PICTURE_SIDE = 32
"""Side from which a part with three dimensions is a picture, not a board, and is strided over."""

# The factor maps 0..255 to [0, 1].
PIXEL_SCALE = 1.0 / 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """Height, width and channels of a part of an observation.

    Attributes:
        height: Rows of cells or pixels.
        width: Columns.
        channels: Numbers in each cell.
        first: Whether the channels are the first dimension, not the last.
    """

    height: int
    width: int
    channels: int
    first: bool


def is_image(leaf: Leaf) -> bool:
    """Return whether a part holds brightnesses: uint8 of 0 to 255 in two or three dimensions."""
    is_bytes = leaf.is_box and leaf.dtype == np.uint8 and leaf.size > 0
    return is_bytes and len(leaf.shape) in (2, 3) and (leaf.low, leaf.high) == (0.0, 255.0)


def planes_of(leaf: Leaf, *, channels: Channels) -> Planes | None:
    """Return a part's height, width and channels; None where it is no grid of numbers.

    Args:
        leaf: Part with two dimensions (one channel) or three.
        channels: Place of the channels among three dimensions. ``auto``: the dimension left over if
            the other two are equal, else the smaller one of the first and the last, else the last.
    """
    if not leaf.is_box or leaf.size == 0:
        return None
    if len(leaf.shape) == 2:
        height, width = leaf.shape
        return Planes(height=height, width=width, channels=1, first=True)
    if len(leaf.shape) != 3:
        return None
    a, b, c = leaf.shape
    if channels == "first" or (channels == "auto" and _first(a, b, c)):
        return Planes(height=b, width=c, channels=a, first=True)
    return Planes(height=a, width=b, channels=c, first=False)


def _first(a: int, b: int, c: int) -> bool:
    # Equal sides are height and width: the smaller of first and last alone would take chess (8 x 8
    # x 111) for eight planes of 8 x 111.
    if (a == b) != (b == c):
        return b == c
    return a < c


def is_picture(leaf: Leaf, planes: Planes) -> bool:
    """Return whether a convolution strides over a part; boards keep their cells."""
    # Two dimensions of numbers other than bytes are no picture, however large.
    has_large_sides = min(planes.height, planes.width) >= MIN_PICTURE_SIDE
    return is_image(leaf) or (has_large_sides and len(leaf.shape) == 3)


def wants_convolution(leaf: Leaf, planes: Planes) -> bool:
    """Return whether ``encoder: auto`` convolves a part: images and other pictures, but not tiny
    ones.
    """
    # An MLP plays boards well and several times faster, so they are not convolved.
    return is_picture(leaf, planes) and min(planes.height, planes.width) >= MIN_IMAGE_SIDE


def convolved_parts(network: NetworkConfig, observation: ObservationLayout) -> dict[int, Planes]:
    """Return the planes of the parts that are convolved, by index among the leaves.

    Raises:
        ConfigError: If convolutions are configured and nothing can be convolved.
    """
    if network.encoder == "mlp" or ":" in network.encoder:
        return {}
    grids = {
        at: planes
        for at, leaf in enumerate(observation.leaves)
        if (planes := planes_of(leaf, channels=network.channels)) is not None
    }
    if network.encoder == "auto":
        leaves = observation.leaves
        return {at: grid for at, grid in grids.items() if wants_convolution(leaves[at], grid)}
    if not grids:
        raise ConfigError(
            f"network.encoder {network.encoder} needs a Box with two or three dimensions in the "
            f"observation, got shapes {[leaf.shape for leaf in observation.leaves]}"
        )
    return grids


def of_critic(network: NetworkConfig, critic_input: ObservationLayout) -> NetworkConfig:
    """Return the architecture of a centralized critic, whose input differs from the policy's."""
    # A user's module was made for another input.
    if ":" in network.encoder:
        return network.model_copy(update={"encoder": "auto"})
    # A critic's input may be a vector, which `convolved_parts` refuses for `cnn`.
    grids = (planes_of(leaf, channels=network.channels) for leaf in critic_input.leaves)
    return network if any(grids) else network.model_copy(update={"encoder": "mlp"})
