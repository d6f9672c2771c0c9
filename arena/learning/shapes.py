"""Checks of ranks and shapes: an [M] beside an [M, 1] would broadcast to [M, M] without a word."""

from __future__ import annotations

import torch


def check_equal_shapes(rank: int, **tensors: torch.Tensor) -> None:
    """Check that all tensors have one shape, of a given rank.

    Args:
        rank: Number of their dimensions.
        **tensors: Tensors by the names in the message.

    Raises:
        ValueError: If they do not. States every shape.
    """
    shapes = [tensor.shape for tensor in tensors.values()]
    if len(shapes[0]) != rank or shapes.count(shapes[0]) != len(shapes):
        found = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        what = "a shape" if len(shapes) == 1 else "one shape"
        raise ValueError(f"tensors must have {what} of {rank} dimensions, got {found}")
