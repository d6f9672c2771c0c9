"""Tensors of a checkpoint read without torch: whether its bytes are tensors, and of which shapes.

`arena.checkpoints.tensors` loads them into a policy; whoever only has to believe in them reads them
here.

Tests: `tests/arena/checkpoints/test_tensors.py`.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from arena.checkpoints.files import read_verified
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.errors import CheckpointCorrupt

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each tensor, sorted."""


def read_shapes(directory: Path, manifest: Manifest) -> Shapes:
    """Read all tensors of a checkpoint or ghost, and return the shapes of its weights.

    Those of the optimizer follow from its algorithm, and from how far it has come.

    Raises:
        CheckpointCorrupt: If a file is missing, damaged or anything but finite float32 tensors.
        DiskRefused: If the disk refuses.
    """
    # A ghost has no optimizer.
    if OPTIMIZER in manifest.files and (directory / OPTIMIZER).exists():
        _shapes(directory, OPTIMIZER, manifest)
    return _shapes(directory, WEIGHTS, manifest)


def num_parameters(directory: Path) -> int | None:
    """Return the number of weights of a checkpoint's or ghost's network; None: it cannot be read.

    Statistics of normalizers, which no gradient moves, are not counted.
    """
    try:
        # Only the header is read.
        with safe_open(directory / WEIGHTS, framework="np") as file:
            return sum(
                int(math.prod(file.get_slice(name).get_shape()))
                for name in file.keys()  # noqa: SIM118
                if not name.partition(".")[0].endswith("_normalizer")
            )
    except (OSError, SafetensorError):
        return None


def _shapes(directory: Path, name: str, manifest: Manifest) -> Shapes:
    source = directory / name
    data = read_verified(directory, name, manifest.files[name])
    try:
        # Sizes in the header are compared with the actual bytes before any array is made.
        tensors = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointCorrupt(f"{source}: not a file of tensors: {error}") from error
    for tensor_name, tensor in tensors.items():
        if tensor.dtype != np.float32 or not bool(np.isfinite(tensor).all()):
            raise CheckpointCorrupt(f"{source}: tensor {tensor_name[:100]!r} is not finite float32")
    return tuple(sorted((name, tensor.shape) for name, tensor in tensors.items()))
