"""Actions are rows and rows are actions, whatever the space."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.environment_spec import ContinuousActions
from arena.envs.describe import agent_spec
from arena.envs.random_play import uniform_actions
from arena.envs.spaces.masks import flatten_mask
from arena.envs.spaces.observations import describe, flatten_into
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import ActionLayout, ObservationLayout, UnusableSpace

Space = spaces.Space[Any]

HOW: st.SearchStrategy[ContinuousActions] = st.sampled_from(["squashed", "clipped"])


def layout_of(space: Space, *, continuous: ContinuousActions = "squashed") -> ActionLayout:
    described = json.loads(json.dumps(describe(space), allow_nan=False, sort_keys=True))
    return ActionLayout.from_json(described, continuous=continuous)


def observation_layout_of(space: Space) -> ObservationLayout:
    return ObservationLayout.from_json(json.loads(json.dumps(describe(space), sort_keys=True)))


def boxes() -> st.SearchStrategy[Space]:
    bound = st.sampled_from([-math.inf, -3.0, 0.0, 0.1, 2.5, math.inf])

    def box(shape: tuple[int, ...], dtype: str, one: float, other: float) -> Space:
        low, high = min(one, other), max(one, other)
        if dtype == "uint8":
            return spaces.Box(0, 255, shape, np.uint8)
        if low == high:
            low, high = (-1.0, 1.0) if math.isinf(low) else (low, low + 1.0)
        return spaces.Box(low, high, shape, np.dtype(dtype).type)

    shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    return st.builds(box, shapes, st.sampled_from(["float32", "float64", "uint8"]), bound, bound)


def leaves() -> st.SearchStrategy[Space]:
    sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
    start = st.integers(-3, 3)
    return st.one_of(
        boxes(),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), start),
        st.builds(
            lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)), sizes, start
        ),
        st.builds(lambda nvec: spaces.MultiDiscrete([nvec, nvec]), sizes),
        st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 3), sizes)),
    )


def nested_spaces() -> st.SearchStrategy[Space]:
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(parts)),
            st.dictionaries(st.sampled_from("dcba"), inner, min_size=1, max_size=3).map(
                lambda parts: spaces.Dict(parts)
            ),
        ),
        max_leaves=5,
    )


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert set(one) == set(other)
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, tuple):
        assert isinstance(other, tuple)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    else:
        assert np.asarray(one).shape == np.asarray(other).shape
        np.testing.assert_allclose(one, other, rtol=1e-6)


def at(nested: Any, index: int) -> Any:
    if isinstance(nested, dict):
        return {name: at(part, index) for name, part in nested.items()}
    if isinstance(nested, tuple):
        return tuple(at(part, index) for part in nested)
    return nested[index]


@settings(deadline=None, max_examples=60)
@given(space=nested_spaces(), seed=st.integers(0, 2**31 - 1))
def test_nested_observations_survive_flattening(space: Space, seed: int) -> None:
    layout = observation_layout_of(space)
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    rows = np.full((3, layout.size), 77, dtype=layout.dtype)
    for row, sample in zip(rows, samples, strict=True):
        flatten_into(layout, row, sample)
    undone = layout.to_environment(rows)
    for index, sample in enumerate(samples):
        same(sample, at(undone, index))
    covered = [position for leaf in layout.leaves for position in range(layout.size)[leaf.place]]
    assert covered == list(range(layout.size))


@settings(deadline=None, max_examples=60)
@given(space=nested_spaces(), how=HOW, seed=st.integers(0, 2**31 - 1))
@pytest.mark.slow
def test_what_is_drawn_is_in_the_space(space: Space, how: ContinuousActions, seed: int) -> None:
    layout = layout_of(space, continuous=how)
    generator = torch.Generator().manual_seed(seed)
    uniform = uniform_actions(layout, num_rows=8, action_mask=None, generator=generator).numpy()
    assert uniform.shape == (8, *layout.row_shape)
    assert uniform.dtype == layout.row_dtype
    wild = uniform.copy()
    if not layout.is_discrete:
        # A policy may sample any number, also outside the bounds.
        rng = np.random.default_rng(seed)
        wild[:, len(layout.branches) :] = rng.normal(scale=1e3, size=(8, layout.num_continuous))
    for rows in (uniform, wild):
        assert layout.are_legal(rows, None).all()
        actions = layout.actions(rows)
        for index, action in enumerate(actions):
            assert space.contains(action), action
            same(at(layout.to_environment(rows), index), action)


@settings(deadline=None, max_examples=60)
@given(space=nested_spaces(), how=HOW, seed=st.integers(0, 2**31 - 1))
def test_the_environments_own_actions_have_rows(
    space: Space, how: ContinuousActions, seed: int
) -> None:
    layout = layout_of(space, continuous=how)
    space.seed(seed)
    sample = space.sample()
    batch = layout.to_environment(layout.from_environment(with_axis(sample)))
    assert layout.are_legal(layout.from_environment(with_axis(sample)), None).all()
    roundly(sample, at(batch, 0))


def with_axis(nested: Any) -> Any:
    if isinstance(nested, dict):
        return {name: with_axis(part) for name, part in nested.items()}
    if isinstance(nested, tuple):
        return tuple(with_axis(part) for part in nested)
    return np.asarray(nested)[None]


def roundly(one: Any, other: Any) -> None:
    """Tanh is undone to about a part in a million of the range."""
    if isinstance(one, dict):
        for name in one:
            roundly(one[name], other[name])
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            roundly(mine, theirs)
    else:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_discrete_action_is_an_integer() -> None:
    layout = layout_of(spaces.Discrete(4, start=-2))
    assert (layout.branches, layout.num_logits, layout.num_continuous) == ((4,), 4, 0)
    assert layout.row_shape == ()
    assert layout.actions(np.array([0, 3])) == [-2, 1]
    assert [type(action) for action in layout.actions(np.array([0]))] == [int]
    assert layout.from_environment([-2, 1]).tolist() == [0, 3]


def test_choices_come_before_numbers() -> None:
    space = spaces.Dict(
        {
            "a": spaces.Box(-1.0, 3.0, (2,)),
            "b": spaces.MultiDiscrete([2, 4], start=[1, 0]),
            "c": spaces.Discrete(3),
        }
    )
    layout = layout_of(space)
    assert layout.branches == (2, 4, 3)
    assert layout.row_shape == (5,)
    row = np.array([[1, 2, 0, 0.5, -20.0]], dtype=np.float32)
    (action,) = layout.actions(row)
    # The first value is 1 + 2 tanh(0.5); the second one saturates tanh in float32.
    np.testing.assert_allclose(action["a"], [1.0 + 2.0 * math.tanh(0.5), -1.0], rtol=1e-6)
    assert action["b"].tolist() == [2, 2]
    assert action["c"] == 0
    (clipped,) = layout_of(space, continuous="clipped").actions(row)
    assert clipped["a"].tolist() == [0.5, -1.0]


def test_where_a_bound_is_missing_nothing_is_squashed() -> None:
    low, high = np.array([-np.inf, 0.0, -1.0], np.float32), np.array([2.0, np.inf, 1.0], np.float32)
    layout = layout_of(spaces.Box(low, high))
    assert layout.squashed.tolist() == [False, False, True]
    (action,) = layout.actions(np.array([[5.0, -5.0, 5.0]], dtype=np.float32))
    np.testing.assert_allclose(action, [2.0, 0.0, math.tanh(5.0)], rtol=1e-6)


def test_numbers_are_drawn_uniformly_within_their_bounds() -> None:
    for how in ("squashed", "clipped"):
        layout = layout_of(spaces.Box(-1.0, 3.0, (1,)), continuous=how)
        generator = torch.Generator().manual_seed(3)
        rows = uniform_actions(layout, num_rows=40_000, action_mask=None, generator=generator)
        drawn = layout.to_environment(rows.numpy())[:, 0]
        # Each quarter is within 4.4 standard deviations of its mean: p = 0.00004 for all of them.
        counts = np.histogram(drawn, bins=4, range=(-1.0, 3.0))[0]
        assert np.abs(counts - 10_000).max() < 381


def test_legal_choices_are_drawn_by_branch() -> None:
    layout = layout_of(spaces.MultiDiscrete([2, 3]))
    mask = torch.tensor([[False, True, True, False, True]]).expand(2_000, -1)
    generator = torch.Generator().manual_seed(4)
    rows = uniform_actions(layout, num_rows=2_000, action_mask=mask, generator=generator)
    assert set(rows[:, 0].tolist()) == {1.0}
    zeros = int((rows[:, 1] == 0).sum())
    assert zeros + int((rows[:, 1] == 2).sum()) == 2_000
    assert abs(zeros - 1_000) < 100


@pytest.mark.parametrize(
    ("mask", "flat"),
    [
        (np.array([1, 0, 1, 1, 0], np.int8), [1, 0, 1, 1, 0]),
        ((np.array([1, 0]), np.array([1, 1, 0])), [1, 0, 1, 1, 0]),
        ([[True, False], [True, True, False]], [1, 0, 1, 1, 0]),
        (None, [1, 1, 1, 1, 1]),
    ],
)
def test_masks_of_a_multi_discrete(mask: object, flat: list[int]) -> None:
    layout = layout_of(spaces.MultiDiscrete([2, 3]))
    assert flatten_mask(layout, mask).tolist() == [bool(entry) for entry in flat]


def test_masks_nest_as_the_space_does() -> None:
    layout = layout_of(
        spaces.Dict(
            {
                "go": spaces.Box(-1, 1, (2,)),
                "pick": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
                "flags": spaces.MultiBinary(1),
            }
        )
    )
    # The leaves are in the order of their names: flags, (go), pick.
    mask = {"pick": (np.array([0, 1]), None), "flags": np.array([[1, 0]]), "go": None}
    assert flatten_mask(layout, mask).tolist() == [True, False, False, True, True, True, True]
    with pytest.raises(ValueError, match="must have a part 'flags', it has none"):
        flatten_mask(layout, {"pick": None})
    with pytest.raises(ValueError, match=r"must have 2 entries, for choices \[2\], got 3"):
        flatten_mask(layout, {"pick": (np.ones(3), None), "flags": None} | {"flags": [1, 1, 1]})
    with pytest.raises(ValueError, match="must be integers or bool, got"):
        flatten_mask(layout, {"pick": None, "flags": "yes"})


def test_every_branch_must_be_allowed_a_choice() -> None:
    layout = layout_of(spaces.MultiDiscrete([2, 3]))
    masks = np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=np.bool_)
    assert layout.allows(masks).tolist() == [True, False, False]


def test_rows_that_are_no_actions() -> None:
    layout = layout_of(spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (1,)))))
    rows = np.array(
        [[1, 2, 0.3], [2, 0, 0], [0, -1, 0], [0.5, 0, 0], [0, 0, np.nan], [0, 1, 9.0]], np.float32
    )
    assert layout.are_legal(rows, None).tolist() == [True, False, False, False, False, True]
    mask = np.tile(np.array([True, True, True, False, True]), (6, 1))
    assert layout.are_legal(rows, mask).tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({"low": 0.0, "high": "nan"}, "got 0.0 and nan at position 0"),
        ({"low": [0.0, 1.0], "high": [0.0, 0.5]}, "got 1.0 and 0.5 at position 1"),
        ({"low": "inf", "high": "inf"}, "got inf and inf at position 0"),
        ({"shape": [0], "low": [], "high": []}, "must have an action, it has none"),
        ({"kind": "Dict", "spaces": {}}, "must have an action, it has none"),
    ],
)
def test_action_spaces_without_actions_are_refused(space: dict[str, Any], text: str) -> None:
    box = {"kind": "Box", "shape": [2], "dtype": "float32"}
    with pytest.raises(UnusableSpace, match=text):
        ActionLayout.from_json(box | space, continuous="squashed")


def test_an_agent_without_actions_is_named() -> None:
    class Env:
        def observation_space(self, agent: str) -> spaces.Discrete:
            return spaces.Discrete(2)

        def action_space(self, agent: str) -> spaces.Dict:
            return spaces.Dict({})

    with pytest.raises(ConfigError, match=r"agent 'a': action space .* must have an action"):
        agent_spec(Env(), "a")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"x": np.zeros((2, 2))}, r"actions\['y'\] must be there: KeyError"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2, int)}, r"\['x'\] must have shape \(N, 2\), got"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(2)}, r"\['y'\] must be integers, got float64"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(3, int)}, r"as many rows, got \[2, 3\]"),
        ({"x": np.full((2, 2), "a"), "y": np.zeros(2, int)}, r"\['x'\] must be numbers, got <U1"),
    ],
)
def test_malformed_actions_are_refused(answer: object, text: str) -> None:
    layout = layout_of(spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": spaces.Discrete(2)}))
    with pytest.raises(ValueError, match=text):
        layout.from_environment(answer)


def test_a_part_that_is_wrong_is_named() -> None:
    layout = observation_layout_of(
        spaces.Dict({"map": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,))))})
    )
    row = np.zeros(layout.size, dtype=np.float32)
    with pytest.raises(EnvironmentFault, match=r"an observation's \['map'\]\[1\] must have shape"):
        flatten_into(layout, row, {"map": (0, np.zeros(3))})
    with pytest.raises(EnvironmentFault, match=r"an observation's \['map'\]\[0\] must be there"):
        flatten_into(layout, row, {"maps": 0})
    assert [leaf.path for leaf in layout.leaves] == [("map", "0"), ("map", "1")]


def test_bytes_stay_bytes_and_do_not_wrap_around() -> None:
    image = spaces.Box(0, 255, (2, 2, 1), np.uint8)
    layout = observation_layout_of(image)
    assert layout.dtype == np.uint8
    assert (layout.leaves[0].low, layout.leaves[0].high) == (0.0, 255.0)
    row = np.zeros(4, dtype=np.uint8)
    flatten_into(layout, row, np.array([0, 1, 254, 255]).reshape(2, 2, 1))
    assert row.tolist() == [0, 1, 254, 255]
    with pytest.raises(EnvironmentFault, match=r"must be in \[0, 255\], got 256"):
        flatten_into(layout, row, np.array([0, 1, 256, -1]).reshape(2, 2, 1))
    beside = observation_layout_of(spaces.Dict({"image": image, "more": spaces.Discrete(2)}))
    assert beside.dtype == np.float32


def test_the_order_of_names_in_json_makes_no_difference() -> None:
    one, other = {"kind": "MultiBinary", "shape": [2]}, {"kind": "Discrete", "n": 3, "start": 0}
    forwards = {"kind": "Dict", "spaces": {"a": one, "b": other}}
    backwards = {"kind": "Dict", "spaces": {"b": other, "a": one}}
    row = np.array([[1.0, 0.0, 2.0]], dtype=np.float32)
    for space in (forwards, backwards):
        (action,) = ActionLayout.from_json(space, continuous="squashed").actions(row)
        assert action["a"].tolist() == [1, 0]
        assert action["b"] == 2
    assert ObservationLayout.from_json(forwards) == ObservationLayout.from_json(backwards)
