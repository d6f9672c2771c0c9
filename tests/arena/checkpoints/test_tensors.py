from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest, PolicyRecord, ghost_key
from arena.checkpoints.publish import link_ghost, publish, remove_directory
from arena.checkpoints.shapes import num_parameters, read_shapes
from arena.checkpoints.tensors import (
    deserialize,
    load_checkpoint,
    load_weights,
    publish_policy,
    serialize,
)
from arena.config import NetworkConfig
from arena.errors import CheckpointCorrupt, CheckpointMissing, NonFiniteError
from arena.types import CheckpointRef, Digest, PolicyId, WeightsRef
from tests.arena.transfer.conftest import checkpoint

BAD = (float("nan"), float("inf"), float("-inf"))


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "trunk.weight": torch.randn(8, 5, generator=generator),
        "count": torch.tensor(3.0),
        "empty": torch.zeros(0, 4),
    }


def publish_tensors(root: Path, *, weights_seed: int = 1, agent_steps: int = 10) -> CheckpointRef:
    return publish_policy(
        root,
        PolicyRecord(
            policy=PolicyId("player/p003"),
            generation=1,
            agent_steps=agent_steps,
            learner_updates=4,
            hyperparameters={"learning_rate": 3e-4, "num_epochs": 4},
            parent=Digest("1" * 64),
            donor=PolicyId("player/p001"),
            environment_digest=Digest("0" * 64),
            population_agents=("player_0", "player_1"),
            network=NetworkConfig(hidden_sizes=(8,)),
        ),
        weights=tensors(weights_seed),
        optimizer_state=tensors(weights_seed + 100),
    )


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_equal_tensors_have_equal_bytes_whatever_their_order_strides_and_storage() -> None:
    base = tensors(0)
    other = dict(reversed(base.items()))
    other["trunk.weight"] = base["trunk.weight"].t().contiguous().t()
    shared = torch.cat([base["trunk.weight"], base["trunk.weight"]])
    third = {**base, "trunk.weight": torch.nn.Parameter(shared[8:])}
    assert serialize(base) == serialize(other) == serialize(third)


def test_there_is_no_metadata_and_names_are_sorted() -> None:
    data = serialize(tensors(0))
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert sorted(header) == ["count", "empty", "trunk.weight"]


def test_tensors_that_share_memory_are_written_twice() -> None:
    both = torch.arange(6.0)
    loaded = deserialize(serialize({"a": both, "b": both}))
    assert torch.equal(loaded["a"], both)
    assert torch.equal(loaded["b"], both)


def test_an_empty_state_travels() -> None:
    assert deserialize(serialize({})) == {}


@settings(max_examples=30, deadline=None)
@given(
    shapes=st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.lists(st.integers(0, 3), max_size=3),
        max_size=4,
    ),
    seed=st.integers(0, 2**32),
)
def test_what_was_written_is_read(shapes: dict[str, list[int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    given_tensors = {
        name: torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    assert same(deserialize(serialize(given_tensors)), given_tensors)


@given(data=st.binary(max_size=200))
def test_other_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        deserialize(data)


@pytest.mark.parametrize("number", BAD)
def test_non_finite_numbers_are_neither_written_nor_read(number: float) -> None:
    with pytest.raises(NonFiniteError, match="'x'"):
        serialize({"x": torch.tensor([1.0, number])})
    data = bytearray(serialize({"x": torch.tensor([1.0, 2.0])}))
    data[-4:] = struct.pack("<f", number)
    with pytest.raises(CheckpointCorrupt, match="'x'"):
        deserialize(bytes(data))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
def test_only_float32_is_written(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="float32"):
        serialize({"x": torch.ones(2, dtype=dtype)})


def test_a_policy_comes_back(tmp_path: Path) -> None:
    reference = publish_tensors(tmp_path)
    manifest, weights, optimizer = load_checkpoint(tmp_path, reference)
    assert same(weights, tensors(1))
    assert same(optimizer, tensors(101))
    assert manifest.digest == reference.digest
    assert (manifest.agent_steps, manifest.learner_updates, manifest.generation) == (10, 4, 1)
    assert (manifest.parent, manifest.donor) == ("1" * 64, "player/p001")
    assert publish_tensors(tmp_path) == reference


def test_nothing_is_written_for_a_policy_that_is_not_finite(tmp_path: Path) -> None:
    broken = tensors(1)
    broken["count"] = torch.tensor(float("nan"))
    with pytest.raises(NonFiniteError):
        publish_policy(
            tmp_path,
            PolicyRecord(
                policy=PolicyId("player/p003"),
                generation=0,
                agent_steps=0,
                learner_updates=0,
                hyperparameters={},
                parent=None,
                donor=None,
                environment_digest=Digest("0" * 64),
                population_agents=(),
                network=NetworkConfig(),
            ),
            weights=tensors(1),
            optimizer_state=broken,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_ghost_keeps_its_weights_when_all_else_is_gone(tmp_path: Path) -> None:
    reference = publish_tensors(tmp_path)
    manifest, *_ = load_checkpoint(tmp_path, reference)
    key = ghost_key("player/p003", agent_steps=10, digest=reference.digest)
    link_ghost(tmp_path, checkpoint_key=reference.key, ghost_key=key)
    ghost = WeightsRef(digest=manifest.weights_digest, key=key)
    _, before = load_weights(tmp_path, ghost)
    before["trunk.weight"].zero_()
    remove_directory(tmp_path, reference.key)
    _, after = load_weights(tmp_path, ghost)
    assert same(after, tensors(1))
    with pytest.raises(CheckpointMissing):
        load_checkpoint(tmp_path, reference)
    with pytest.raises(CheckpointCorrupt):
        load_checkpoint(tmp_path, CheckpointRef(digest=reference.digest, key=key))


def test_what_was_asked_for_by_digest_is_what_is_loaded(tmp_path: Path) -> None:
    first, second = (
        publish_tensors(tmp_path),
        publish_tensors(tmp_path, weights_seed=2, agent_steps=20),
    )
    with pytest.raises(CheckpointCorrupt, match="instead of"):
        load_checkpoint(tmp_path, CheckpointRef(digest=second.digest, key=first.key))
    with pytest.raises(CheckpointCorrupt, match="instead of"):
        load_weights(tmp_path, WeightsRef(digest=second.digest, key=second.key))


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER])
def test_a_flipped_bit_is_never_loaded(tmp_path: Path, name: str) -> None:
    reference = publish_tensors(tmp_path)
    path = tmp_path / reference.key / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointCorrupt, match=name):
        load_checkpoint(tmp_path, reference)


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
    # The checkpoint of a ghost has no optimizer.
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
BAD_HEADERS = {
    "junk": b"junk",
    "empty": b"",
    "no header": (2**62).to_bytes(8, "little") + b"{}",
    "more than there is": len(HUGE).to_bytes(8, "little") + HUGE,
    "float64": bytes(safetensors.numpy.save({"a": np.zeros(2)})),
    "not finite": bytes(safetensors.numpy.save({"a": np.array([np.inf], np.float32)})),
}


@pytest.mark.parametrize("data", BAD_HEADERS.values(), ids=BAD_HEADERS)
@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER])
def test_other_bytes_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    good = serialize({"a": torch.zeros(2)})
    directory, manifest = published(tmp_path, {WEIGHTS: good, OPTIMIZER: good, name: data})
    with pytest.raises(CheckpointCorrupt, match=name):
        read_shapes(directory, manifest)
