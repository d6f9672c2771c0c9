from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arena.envs.spaces.observations import (
    LARGEST_SEEN,
    describe,
    discrete_actions,
    flatten_into,
)
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import ObservationLayout


def layout_of(space: spaces.Space[Any]) -> ObservationLayout:
    return ObservationLayout.from_json(json.loads(json.dumps(describe(space), allow_nan=False)))


def test_describes_a_board() -> None:
    board = spaces.Box(0, 1, (6, 7, 2), np.int8)
    assert describe(board) == {
        "kind": "Box",
        "shape": [6, 7, 2],
        "dtype": "int8",
        "low": 0,
        "high": 1,
    }


def test_infinite_bounds_go_through_json() -> None:
    low = np.array([-1.5, -np.inf], dtype=np.float32)
    high = np.array([np.inf, np.inf], dtype=np.float32)
    described = describe(spaces.Box(low, high))
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["low"] == [-1.5, "-inf"]
    assert described["high"] == "inf"


def test_describes_discrete_with_its_start() -> None:
    described = describe(spaces.Discrete(4, start=-2))
    assert described == {"kind": "Discrete", "n": 4, "start": -2}
    assert discrete_actions(described) == range(-2, 2)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({"map": spaces.Text(5)}),
        spaces.Tuple((spaces.Discrete(2), spaces.OneOf((spaces.Discrete(2),)))),
    ],
    ids=["text", "graph", "sequence", "in a dict", "in a tuple"],
)
def test_refuses_other_spaces_by_name(space: spaces.Space[Any]) -> None:
    text = "(Text|Graph|Sequence|OneOf).* is not supported: Box, Discrete, MultiDiscrete, Multi"
    with pytest.raises(ConfigError, match=text):
        describe(space)


def test_actions_must_be_discrete() -> None:
    with pytest.raises(ConfigError, match="not supported here: Discrete is"):
        discrete_actions(describe(spaces.Box(0, 1, (2,))))


@settings(deadline=None)
@given(
    hnp.arrays(
        dtype=st.sampled_from([np.int8, np.uint8, np.int32, np.float32, np.bool_]),
        shape=hnp.array_shapes(min_dims=0, max_dims=4, max_side=4),
    ).filter(lambda values: bool((np.abs(values.astype(np.float64)) <= LARGEST_SEEN).all()))
)
def test_flattening_is_undone(values: npt.NDArray[Any]) -> None:
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, posinf=1.0, neginf=-1.0)
    if values.dtype == np.int32:
        values = values % 2**24  # float32 holds these exactly
    layout = ObservationLayout.from_json(
        {
            "kind": "Box",
            "shape": list(values.shape),
            "dtype": values.dtype.name,
            "low": "-inf",
            "high": "inf",
        }
    )
    assert layout.dtype == (np.uint8 if values.dtype == np.uint8 else np.float32)
    rows = np.full((2, layout.size), 77, dtype=layout.dtype)
    flatten_into(layout, rows[0], values)
    flatten_into(layout, rows[1], values)
    for flat in (rows, torch.from_numpy(rows)):
        undone = layout.to_environment(flat)
        assert undone.shape == (2, *values.shape)
        assert undone.dtype == values.dtype
        np.testing.assert_array_equal(undone[1], values)


@settings(deadline=None)
@given(n=st.integers(1, 9), start=st.integers(-5, 5), data=st.data())
def test_discrete_is_one_hot(n: int, start: int, data: st.DataObject) -> None:
    layout = layout_of(spaces.Discrete(n, start=start))
    value = data.draw(st.integers(start, start + n - 1))
    row = np.full(n, np.nan, dtype=np.float32)
    flatten_into(layout, row, np.array(value))
    assert row.tolist() == [float(start + index == value) for index in range(n)]
    assert layout.to_environment(row[None]).tolist() == [value]


def test_writes_a_copy() -> None:
    layout = layout_of(spaces.Box(-1, 1, (2,)))
    row, values = np.zeros(2, dtype=np.float32), np.array([0.5, -0.5], dtype=np.float32)
    flatten_into(layout, row, values)
    values[:] = 9.0
    assert row.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (
            np.array([0.0, np.nan]),
            r"must be finite.* got nan at position 1 of 2",
        ),
        (
            np.array([np.inf, 0.0], dtype=np.float32),
            "must be finite.* got inf",
        ),
        (
            np.array([0.0, 1e300]),
            "must be finite.* got 1e.300 at position 1",
        ),
        (np.zeros(3), r"must have shape \(2,\), got \(3,\)"),
        (np.zeros((2, 1)), r"must have shape \(2,\), got \(2, 1\)"),
        (0.5, r"must have shape \(2,\), got \(\)"),
        (np.zeros(2, dtype=np.complex64), "must have dtype float32, got complex64"),
        (np.array(["a", "b"]), "must have dtype float32, got <U1"),
        (np.array([None, 1.0]), "must have dtype float32, got object"),
    ],
)
def test_refuses_what_is_not_in_a_box(observation: object, text: str) -> None:
    layout = layout_of(spaces.Box(-math.inf, math.inf, (2,)))
    with pytest.raises(EnvironmentFault, match=text):
        flatten_into(layout, np.zeros(2, dtype=np.float32), observation)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (4, r"must be in \[1, 4\), got 4"),
        (0, r"must be in \[1, 4\), got 0"),
        (1.5, "must have dtype int64, got float64"),
        (np.array([2]), r"must have shape \(\), got \(1,\)"),
    ],
)
def test_refuses_what_is_not_in_discrete(observation: object, text: str) -> None:
    layout = layout_of(spaces.Discrete(3, start=1))
    with pytest.raises(EnvironmentFault, match=text):
        flatten_into(layout, np.zeros(3, dtype=np.float32), observation)


def test_a_box_of_integers_takes_no_fractions() -> None:
    layout = layout_of(spaces.Box(0, 1, (2,), np.int8))
    with pytest.raises(EnvironmentFault, match="must have dtype int8, got float64"):
        flatten_into(layout, np.zeros(2, dtype=np.float32), np.array([0.5, 0.5]))
