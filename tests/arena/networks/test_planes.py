from __future__ import annotations

import pytest

from arena.config import NetworkConfig
from arena.errors import ConfigError
from arena.networks.planes import convolved_parts, is_image, planes_of
from arena.spaces import Leaf, ObservationLayout


def layout(*shapes: tuple[int, ...], dtype: str = "float32", high: float = 1) -> ObservationLayout:
    boxes = [
        {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": 0, "high": high}
        for shape in shapes
    ]
    return ObservationLayout.from_json({"kind": "Tuple", "spaces": boxes})


def leaf(*shape: int, dtype: str = "float32", high: float = 1) -> Leaf:
    return layout(shape, dtype=dtype, high=high).leaves[0]


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
        (layout((84, 84, 4), dtype="uint8", high=255), True),
        (layout((8, 8, 3), dtype="uint8", high=255), True),
        (layout((210, 160), dtype="uint8", high=255), True),
        (layout((64, 64, 3)), True),
        (layout((7, 7, 3), dtype="uint8", high=255), False),
        (layout((19, 19, 17)), False),
        (layout((8, 8, 111), dtype="bool"), False),
        (layout((28, 5)), False),
        (layout((40,)), False),
    ],
)
def test_auto_convolves_pictures_alone(part: ObservationLayout, is_convolved: bool) -> None:
    assert bool(convolved_parts(NetworkConfig(), part)) is is_convolved


def test_a_configured_convolution_takes_every_grid() -> None:
    parts = layout((6, 7, 2), (5,), (4, 4))
    assert list(convolved_parts(NetworkConfig(encoder="cnn"), parts)) == [0, 2]
    assert list(convolved_parts(NetworkConfig(encoder="residual_cnn"), parts)) == [0, 2]
    assert convolved_parts(NetworkConfig(encoder="mlp"), parts) == {}
    assert convolved_parts(NetworkConfig(encoder="package.module:Class"), parts) == {}
    with pytest.raises(ConfigError, match=r"cnn needs a Box with two or three.*got shapes \[\(5"):
        convolved_parts(NetworkConfig(encoder="cnn"), layout((5,)))


def test_an_encoder_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="one of auto, mlp, cnn, residual_cnn or package"):
        NetworkConfig(encoder="transformer")
