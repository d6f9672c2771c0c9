from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.config import NetworkConfig
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.encoders import (
    MAX_CELLS,
    PartsEncoder,
    ResidualBlock,
    make_cnn,
    make_residual_cnn,
    strided_layers,
)
from arena.spaces import ObservationLayout
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
    # A stone is felt as far as the layers reach.
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
    # Brightnesses are exact in bfloat16 too.
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
