from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.config import NetworkConfig
from arena.errors import ConfigError
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.encoders import (
    MAX_CELLS,
    PartsEncoder,
    ResidualBlock,
    make_cnn,
    make_residual_cnn,
    strided_layers,
)
from arena.networks.frozen import FrozenPolicy
from arena.networks.planes import convolved_parts, is_image, planes_of
from arena.processes.settings import SETTINGS
from arena.spaces import Leaf, ObservationLayout
from tests.layouts import discrete, flat_observation


def image(*shape: int, dtype: str = "uint8", high: float = 255) -> dict[str, object]:
    return {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": 0, "high": high}


def vector(size: int) -> dict[str, object]:
    return {"kind": "Box", "shape": [size], "dtype": "float32", "low": "-inf", "high": "inf"}


def layout(**spaces: object) -> ObservationLayout:
    return ObservationLayout.from_json({"kind": "Dict", "spaces": spaces})


def make(observation: ObservationLayout, *, seed: int = 0, **config: Any) -> ActorCritic:
    network = NetworkConfig(**{"hidden_sizes": (8,), **config})
    return make_actor_critic(network, observation=observation, action=discrete(3), seed=seed)


def random_rows(observation: ObservationLayout, num_rows: int, *, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    rows: npt.NDArray[Any] = rng.integers(0, 256, (num_rows, observation.size))
    return torch.from_numpy(rows.astype(observation.dtype))


def test_a_picture_of_84_by_84_gets_the_layers_of_the_paper() -> None:
    layers = [(layer.channels, layer.kernel, layer.stride) for layer in strided_layers(84, 84)]
    assert layers == [(32, (8, 8), 4), (64, (4, 4), 2), (64, (3, 3), 1)]
    assert make_cnn(4, 84, 84, is_picture=True, generator=torch.Generator())[1] == 64 * 7 * 7


@pytest.mark.parametrize(
    ("height", "width", "kernels_and_strides", "cells"),
    [
        (28, 48, [(8, 4), (3, 1)], 4 * 9),
        (20, 20, [(8, 4), (3, 1)], 2 * 2),
        (19, 19, [(4, 2), (3, 1)], 6 * 6),
        (64, 64, [(8, 4), (4, 2), (3, 1)], 4 * 4),
    ],
)
def test_small_pictures_start_coarsely_too(
    height: int, width: int, kernels_and_strides: list[tuple[int, int]], cells: int
) -> None:
    layers = strided_layers(height, width)
    assert [(layer.kernel[0], layer.stride) for layer in layers] == kernels_and_strides
    _, features = make_cnn(1, height, width, is_picture=True, generator=torch.Generator())
    assert features == 64 * cells
    residual, features = make_residual_cnn(4, 84, 84, is_picture=True, generator=torch.Generator())
    assert features == 32 * 11 * 11
    widths = [layer.out_channels for layer in residual if isinstance(layer, torch.nn.Conv2d)]
    assert widths == [16, 32, 32]


SIZES = [(8, 8), (9, 31), (12, 12), (36, 36), (64, 64), (96, 96), (210, 160), (280, 480)]


@pytest.mark.parametrize(("height", "width"), [*SIZES, (457, 120), (8, 480), (1, 1), (3, 200)])
@pytest.mark.parametrize("make_network", [make_cnn, make_residual_cnn])
def test_every_size_gives_the_features_it_says(height: int, width: int, make_network: Any) -> None:
    network, features = make_network(
        3, height, width, is_picture=True, generator=torch.Generator().manual_seed(0)
    )
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, height, width)).shape == (2, features)
    assert features <= 64 * MAX_CELLS


@pytest.mark.parametrize(("make_network", "reach"), [(make_cnn, 3), (make_residual_cnn, 8)])
def test_boards_keep_their_cells(make_network: Any, reach: int) -> None:
    network, features = make_network(
        2, 9, 9, is_picture=False, generator=torch.Generator().manual_seed(0)
    )
    boards = torch.zeros(2, 2, 9, 9)
    boards[1, 0, 0, 0] = 1.0
    with torch.inference_mode():
        empty, stone = network(boards).view(2, -1, 9, 9)
    assert features == empty.numel()
    # A stone changes features within the reach of the layers only.
    felt = (empty != stone).any(dim=0)
    expected = torch.zeros(9, 9, dtype=torch.bool)
    expected[: reach + 1, : reach + 1] = True
    assert torch.equal(felt, expected)


def test_a_residual_block_adds_to_what_it_gets() -> None:
    block = ResidualBlock(4, generator=torch.Generator().manual_seed(0))
    planes = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(1))
    first, second = block.first, block.second
    expected = planes + second(torch.relu(first(torch.relu(planes))))
    torch.testing.assert_close(block(planes), expected)
    second.weight.data.zero_()
    assert torch.equal(block(planes), planes)


def test_a_picture_is_the_same_with_its_channels_first_or_last() -> None:
    last, first = (ObservationLayout.from_json(image(*s)) for s in ((10, 12, 3), (3, 10, 12)))
    rows = random_rows(last, 4)
    turned = rows.view(4, 10, 12, 3).permute(0, 3, 1, 2).reshape(4, -1)
    one, other = make(last), make(first)
    assert torch.equal(one.logits(rows), other.logits(turned))
    assert not torch.allclose(one.logits(rows), other.logits(rows))


def test_brightnesses_are_scaled_and_not_normalized() -> None:
    observation = ObservationLayout.from_json(image(8, 8, 1))
    network = make(observation)
    assert network.observation_normalizer is None
    rows = random_rows(observation, 5)
    assert rows.dtype == torch.uint8
    assert network.normalize_observation(rows).dtype == torch.uint8
    assert isinstance(network.encoder, PartsEncoder)
    convolution = network.encoder.convolutions[0]
    planes = (rows.double() / 255).float().view(5, 1, 8, 8)
    torch.testing.assert_close(network.encoder(rows), convolution(planes))
    # Pixel values are exact in bfloat16 too.
    assert torch.equal(network.encoder(rows.bfloat16()), network.encoder(rows))


def test_small_images_go_to_the_mlp_scaled() -> None:
    observation = ObservationLayout.from_json(image(3, 3, 2))
    network = make(observation)
    rows = random_rows(observation, 4)
    linear = network.trunk[0]
    assert isinstance(linear, torch.nn.Linear)
    assert linear.in_features == 18
    expected = network.head(network.trunk(rows.float() / 255))[:, :3]
    torch.testing.assert_close(network.logits(rows), expected)


def test_a_dictionary_has_an_encoder_for_each_picture_and_the_rest_beside() -> None:
    observation = layout(
        eye=image(8, 8, 3), speed=vector(2), turn={"kind": "Discrete", "n": 4, "start": 0}
    )
    network = make(observation)
    assert observation.dtype == np.float32
    rows = random_rows(observation, 30)
    speed = observation.leaves[1].place
    assert network.observation_normalizer is not None
    assert network.observation_normalizer.mean.shape == (2 + 4,)
    network.observation_normalizer.update(rows)
    normalized = network.normalize_observation(rows)
    eye = observation.leaves[0].place
    assert torch.equal(normalized[:, eye], rows[:, eye])
    expected = (rows[:, speed] - rows[:, speed].mean(0)) / rows[:, speed].std(0, correction=0)
    torch.testing.assert_close(normalized[:, speed], expected, rtol=1e-4, atol=1e-4)
    assert isinstance(network.encoder, PartsEncoder)
    features = network.encoder(normalized)
    pixels = rows[:, eye].view(30, 8, 8, 3).permute(0, 3, 1, 2) / 255
    seen = network.encoder.convolutions[0](pixels)
    rest = normalized[:, eye.stop :]
    torch.testing.assert_close(features, torch.cat([seen, rest], dim=1), rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network.encoder(normalized)
        seen = network.encoder.convolutions[0](pixels)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded, torch.cat([seen, rest.bfloat16()], dim=1), rtol=0, atol=0)


def test_bytes_that_are_no_picture_are_normalized() -> None:
    observation = ObservationLayout.from_json(image(128))
    network = make(observation)
    assert network.encoder is None
    rows = random_rows(observation, 50)
    assert network.observation_normalizer is not None
    network.observation_normalizer.update(rows)
    normalized = network.normalize_observation(rows)
    assert normalized.dtype == torch.float32
    assert normalized.mean().item() == pytest.approx(0.0, abs=1e-4)
    plain = make(observation, normalize_observations=False)
    torch.testing.assert_close(plain.logits(rows), plain.logits(rows.float()))


@pytest.mark.parametrize("encoder", ["auto", "residual_cnn"])
def test_weights_of_convolutions_are_orthogonal_and_a_function_of_the_seed(encoder: str) -> None:
    observation = ObservationLayout.from_json(image(16, 16, 3))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = make(observation, encoder=encoder, seed=3).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    second = make(observation, encoder=encoder, seed=3).state_dict()
    other = make(observation, encoder=encoder, seed=4).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    weight = first["encoder.convolutions.0.0.weight"].flatten(1)
    wide = weight if weight.shape[0] <= weight.shape[1] else weight.T
    torch.testing.assert_close(wide @ wide.T, 2.0 * torch.eye(len(wide)), rtol=1e-4, atol=1e-4)
    assert not torch.equal(weight, other["encoder.convolutions.0.0.weight"].flatten(1))
    assert all(tensor.dtype == torch.float32 for tensor in first.values())


def test_learning_reaches_every_weight() -> None:
    observation = layout(eye=image(8, 8, 3), board=image(4, 4, 2, dtype="int8", high=1))
    for encoder in ("cnn", "residual_cnn"):
        network = make(observation, encoder=encoder, separate_value=True)
        rows = random_rows(observation, 6)
        logits, value = network(network.normalize_observation(rows))
        (logits.square().sum() + value.square().sum()).backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


def test_a_value_of_its_own_shares_nothing() -> None:
    network = make(flat_observation(5), separate_value=True)
    names = set(network.state_dict())
    assert {"critic.trunk.0.weight", "critic.head.weight", "head.weight"} <= names
    assert network.head.out_features == 3
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    logits, value = network(rows)
    assert logits.shape == (9, 3)
    assert value.shape == (9,)
    value.sum().backward()
    assert network.head.weight.grad is None
    assert network.critic is not None
    expected = network.critic.head(network.critic.trunk(rows))[:, 0]
    torch.testing.assert_close(value, expected)
    assert torch.equal(network.policy(rows), logits)


def layout_of(
    *shapes: tuple[int, ...], dtype: str = "float32", high: float = 1
) -> ObservationLayout:
    boxes = [
        {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": 0, "high": high}
        for shape in shapes
    ]
    return ObservationLayout.from_json({"kind": "Tuple", "spaces": boxes})


def leaf(*shape: int, dtype: str = "float32", high: float = 1) -> Leaf:
    return layout_of(shape, dtype=dtype, high=high).leaves[0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84, 4), (84, 84, 4, False)),
        ((4, 84, 84), (84, 84, 4, True)),
        ((8, 8, 111), (8, 8, 111, False)),  # chess: more channels than cells in a row
        ((111, 8, 8), (8, 8, 111, True)),
        ((6, 7, 2), (6, 7, 2, False)),
        ((2, 6, 7), (6, 7, 2, True)),
        ((280, 480, 3), (280, 480, 3, False)),
        ((3, 3, 3), (3, 3, 3, False)),
        ((5, 9), (5, 9, 1, True)),
    ],
)
def test_where_the_channels_are(
    shape: tuple[int, ...], expected: tuple[int, int, int, bool]
) -> None:
    planes = planes_of(leaf(*shape), channels="auto")
    assert planes is not None
    assert (planes.height, planes.width, planes.channels, planes.first) == expected


def test_the_configuration_has_the_last_word_on_channels() -> None:
    first, last = (planes_of(leaf(6, 7, 2), channels=where) for where in ("first", "last"))
    assert first is not None
    assert last is not None
    assert (first.channels, first.height, first.width) == (6, 7, 2)
    assert (last.channels, last.height, last.width) == (2, 6, 7)


def test_what_is_no_grid_has_no_planes() -> None:
    assert planes_of(leaf(5), channels="auto") is None
    assert planes_of(leaf(2, 3, 4, 5), channels="auto") is None
    one_hot = ObservationLayout.from_json({"kind": "Discrete", "n": 4, "start": 0}).leaves[0]
    assert planes_of(one_hot, channels="auto") is None


def test_images_are_bytes_from_0_to_255() -> None:
    assert is_image(leaf(16, 16, 3, dtype="uint8", high=255))
    assert is_image(leaf(16, 16, dtype="uint8", high=255))
    assert not is_image(leaf(16, 16, 3, dtype="uint8", high=1))
    assert not is_image(leaf(16, 16, 3, dtype="int16", high=255))
    assert not is_image(leaf(128, dtype="uint8", high=255))  # memory of a machine


@pytest.mark.parametrize(
    ("part", "is_convolved"),
    [
        (layout_of((84, 84, 4), dtype="uint8", high=255), True),
        (layout_of((8, 8, 3), dtype="uint8", high=255), True),
        (layout_of((210, 160), dtype="uint8", high=255), True),
        (layout_of((64, 64, 3)), True),
        (layout_of((7, 7, 3), dtype="uint8", high=255), False),
        (layout_of((19, 19, 17)), False),
        (layout_of((8, 8, 111), dtype="bool"), False),
        (layout_of((28, 5)), False),
        (layout_of((40,)), False),
    ],
)
def test_auto_convolves_pictures_alone(part: ObservationLayout, is_convolved: bool) -> None:
    assert bool(convolved_parts(NetworkConfig(), part)) is is_convolved


def test_a_configured_convolution_takes_every_grid() -> None:
    parts = layout_of((6, 7, 2), (5,), (4, 4))
    assert list(convolved_parts(NetworkConfig(encoder="cnn"), parts)) == [0, 2]
    assert list(convolved_parts(NetworkConfig(encoder="residual_cnn"), parts)) == [0, 2]
    assert convolved_parts(NetworkConfig(encoder="mlp"), parts) == {}
    assert convolved_parts(NetworkConfig(encoder="package.module:Class"), parts) == {}
    with pytest.raises(ConfigError, match=r"cnn needs a Box with two or three.*got shapes \[\(5"):
        convolved_parts(NetworkConfig(encoder="cnn"), layout_of((5,)))


def test_an_encoder_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="one of auto, mlp, cnn, residual_cnn or package"):
        NetworkConfig(encoder="transformer")


IMAGE_AND_SPEED = ObservationLayout.from_json(
    {
        "kind": "Dict",
        "spaces": {
            "eye": {"kind": "Box", "shape": [4, 4], "dtype": "uint8", "low": 0, "high": 255},
            "speed": {"kind": "Box", "shape": [2], "dtype": "float32", "low": -1, "high": 1},
        },
    }
)

SOURCE = '''
import torch
from torch import nn

class Mean(nn.Module):
    """Mean brightness beside a layer over the speed."""

    num_features = 4

    def __init__(self, observation):
        super().__init__()
        self.eye, self.speed = (leaf.place for leaf in observation.leaves)
        self.layer = nn.Linear(2, 3)

    def forward(self, rows):
        brightness = rows[:, self.eye].mean(dim=1, keepdim=True)
        return torch.cat([brightness, self.layer(rows[:, self.speed])], dim=1)

class Short(Mean):
    num_features = 5

class Nameless(Mean):
    num_features = None

class Batch(Mean):
    def __init__(self, observation):
        super().__init__(observation)
        self.norm = nn.BatchNorm1d(4)

def broken(observation):
    raise RuntimeError("no luck")

def number(observation):
    return 7

class Changing(Mean):
    def __init__(self, observation):
        super().__init__(observation)
        torch.set_default_dtype(torch.float64)

    def forward(self, rows):
        torch.set_default_dtype(torch.float64)
        return super().forward(rows)

class Wrong(Mean):
    def forward(self, rows):
        raise IndexError("no such row")

constant = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's."""
    name = f"own_networks_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def make_with(reference: str, *, seed: int = 0) -> ActorCritic:
    network = NetworkConfig(encoder=reference, hidden_sizes=(8,))
    return make_actor_critic(network, observation=IMAGE_AND_SPEED, action=discrete(3), seed=seed)


def test_it_gets_scaled_rows_and_gives_features(module: str) -> None:
    network = make_with(f"{module}:Mean")
    rows = torch.zeros(2, 18)
    rows[:, :16] = 51.0
    rows[1, 16:] = 0.5
    assert network.encoder is not None
    features = network.encoder(network.normalize_observation(rows))
    assert features.shape == (2, 4)
    torch.testing.assert_close(features[:, 0], torch.tensor([0.2, 0.2]))
    assert network.trunk[0].in_features == 4
    assert {"encoder.module.layer.weight", "encoder.module.layer.bias"} <= set(network.state_dict())


def test_its_weights_are_a_function_of_the_seed(module: str) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = make_with(f"{module}:Mean"), make_with(f"{module}:Mean")
    assert torch.equal(state, torch.get_rng_state())
    name = "encoder.module.layer.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])
    assert not torch.equal(
        first.state_dict()[name], make_with(f"{module}:Mean", seed=1).state_dict()[name]
    )


def test_it_is_made_with_arenas_settings_which_it_does_not_change(module: str) -> None:
    # The environment has its own torch settings.
    SETTINGS.run(torch.set_default_dtype, torch.float64)
    network = make_with(f"{module}:Changing")
    assert torch.get_default_dtype() is torch.float32
    assert {tensor.dtype for tensor in network.state_dict().values()} == {torch.float32}


def test_a_frozen_copy_plays_the_same(module: str) -> None:
    network = make_with(f"{module}:Mean", seed=4)
    frozen = FrozenPolicy.from_weights(
        NetworkConfig(encoder=f"{module}:Mean", hidden_sizes=(8,)),
        network.state_dict(),
        observation=IMAGE_AND_SPEED,
        action=discrete(3),
        device=torch.device("cpu"),
    )
    rows = torch.rand(5, 18, generator=torch.Generator().manual_seed(0))
    assert torch.equal(frozen.logits(rows), network.logits(rows))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Short", r"must give features of shape \[N, num_features\], for 2 rows \[2, 5\], got \[2"),
        ("Nameless", "attribute num_features, an integer of at least 1, got None"),
        ("Batch", "float32 alone .*got norm.num_batches_tracked of torch.int64"),
        ("broken", "making it raised RuntimeError: no luck"),
        ("number", r"must make a torch.nn.Module, got int"),
        ("Wrong", "raised IndexError: no such row"),
        ("constant", "must name a class, got 3"),
        ("Missing", "has no 'Missing'"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(module: str, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_with(f"{module}:{name}")
