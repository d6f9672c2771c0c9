"""Tensors read without torch are those that torch reads, and nothing else is a file of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from msgspec import structs

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.checkpoints.publish import publish
from arena.checkpoints.shapes import num_parameters, read_shapes
from arena.checkpoints.tensors import serialize
from arena.errors import CheckpointCorrupt
from tests.arena.transfer.conftest import checkpoint


def published(root: Path, files: dict[str, bytes]) -> tuple[Path, Manifest]:
    """Publish files as a checkpoint."""
    manifest = structs.replace(checkpoint(1000).manifest, files=file_records(files))
    return root / publish(root, manifest=manifest, files=files).key, manifest


def test_shapes_are_those_of_the_tensors_that_torch_wrote(tmp_path: Path) -> None:
    tensors = {"b.weight": torch.zeros(3, 2), "a": torch.ones(()), "c": torch.zeros(0)}
    weights, state = serialize(tensors), serialize({"step": torch.ones(4)})
    directory, manifest = published(tmp_path, {WEIGHTS: weights, OPTIMIZER: state})
    expected = (("a", ()), ("b.weight", (3, 2)), ("c", (0,)))
    assert read_shapes(directory, manifest) == expected
    # A ghost has no optimizer.
    (directory / OPTIMIZER).unlink()
    assert read_shapes(directory, manifest) == expected


def test_parameters_are_the_weights_without_statistics(tmp_path: Path) -> None:
    tensors = {"head.weight": torch.zeros(3, 2), "a": torch.ones(())}
    statistics = {"observation_normalizer.mean": torch.zeros(5)}
    directory, _ = published(tmp_path, {WEIGHTS: serialize({**tensors, **statistics})})
    assert num_parameters(directory) == 7
    (directory / WEIGHTS).write_bytes(b"junk")
    assert num_parameters(directory) is None
    assert num_parameters(tmp_path / "nothing") is None


HUGE = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
BAD = {
    "junk": b"junk",
    "empty": b"",
    "no header": (2**62).to_bytes(8, "little") + b"{}",
    "more than there is": len(HUGE).to_bytes(8, "little") + HUGE,
    "float64": bytes(safetensors.numpy.save({"a": np.zeros(2)})),
    "not finite": bytes(safetensors.numpy.save({"a": np.array([np.inf], np.float32)})),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER])
def test_other_bytes_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    good = serialize({"a": torch.zeros(2)})
    directory, manifest = published(tmp_path, {WEIGHTS: good, OPTIMIZER: good, name: data})
    with pytest.raises(CheckpointCorrupt, match=name):
        read_shapes(directory, manifest)
