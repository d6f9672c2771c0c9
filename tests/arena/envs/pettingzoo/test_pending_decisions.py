"""What is stacked for the whole batch is what each array alone would have written, or refused."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.environment_spec import AgentSpec, EnvironmentSpec, SpaceJson
from arena.envs.pettingzoo.pending_decisions import PendingDecisions
from arena.envs.spaces.observations import flatten_into
from arena.errors import EnvironmentFault
from arena.spaces import ObservationLayout


def box(dtype: str) -> SpaceJson:
    return {"kind": "Box", "shape": [2, 2], "dtype": dtype, "low": 0, "high": 3}


FLOATS, SMALL, BITS, IMAGE = box("float32"), box("int8"), box("bool"), box("uint8")
DIGITS: SpaceJson = {"kind": "Discrete", "n": 4, "start": 0}
SIGNS: SpaceJson = {"kind": "MultiBinary", "shape": [2, 2]}
THREE: SpaceJson = {"kind": "Discrete", "n": 3, "start": 0}

NUM_ENVS = 3
AGENTS = ("a", "b")
DTYPES = ("bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "<U2")


class Rows:
    """Three environments in which one of two agents is on turn, and the arrays that are written."""

    def __init__(
        self, space: SpaceJson, mask: Literal["observation", "info"] | None = None
    ) -> None:
        facts = AgentSpec(observation=space, action=THREE, mask=mask)
        specs = dict.fromkeys(AGENTS, facts)
        spec = EnvironmentSpec(id="x", kwargs={}, api="aec", agents=AGENTS, agent_specs=specs)
        self.asked = PendingDecisions("p", spec=spec, agents=AGENTS, num_envs=NUM_ENVS)
        self.asked_index = self.asked.agent_index[:, 0]
        self.observation, self.mask = self.asked.observation[:, 0], self.asked.action_mask[:, 0]
        self.observation.fill(7.0)


def observations() -> st.SearchStrategy[Any]:
    """Good ones, and ones of another dtype or shape."""

    def made(dtype: str, transposed: bool, shape: tuple[int, ...], numbers: list[int]) -> Any:
        array = np.resize(np.array(numbers), shape).astype(dtype)
        return array.T if transposed else array

    shapes = st.sampled_from([(2, 2), (2, 2), (2, 2), (4,), (1, 2), (2, 1), ()])
    numbers = st.lists(st.integers(0, 3), min_size=4, max_size=4)
    arrays = st.builds(made, st.sampled_from(DTYPES), st.booleans(), shapes, numbers)
    odd = st.sampled_from(
        [None, 2, [[0, 1], [2, 3]], [[0], [1, 2]], np.array([[0, 1], [2, 1e300]])]
    )
    return st.one_of(arrays, arrays, odd)


def alone(space: SpaceJson, observation: object) -> tuple[list[float], str | None]:
    """What one observation writes into a row by itself, or why it is refused."""
    layout = ObservationLayout.from_json(space)
    row = np.full(4, 7.0, dtype=layout.dtype)
    try:
        flatten_into(layout, row, observation)
    except EnvironmentFault as fault:
        return [], str(fault)
    except ValueError as error:
        return [], f"an observation raised ValueError: {error}"
    return row.tolist(), None


@pytest.mark.parametrize(
    "space",
    [FLOATS, SMALL, BITS, IMAGE, DIGITS, SIGNS],
    ids=["floats", "small", "bits", "image", "digits", "signs"],
)
@given(
    said=st.lists(observations(), max_size=NUM_ENVS),
    columns=st.tuples(*[st.sampled_from([0, 1])] * 3),
)
def test_rows_are_those_of_the_layout(
    space: SpaceJson, said: list[Any], columns: tuple[int, ...]
) -> None:
    rows = Rows(space)
    cells = [2 * b + column for b, column in enumerate(columns[: len(said)])]
    for cell, observation in zip(cells, said, strict=True):
        rows.asked.ask(cell, observation, None)
    written = [alone(space, observation) for observation in said]
    refused = [(b, why) for b, (_, why) in enumerate(written) if why]
    if refused:
        b, why = refused[0]
        with pytest.raises(EnvironmentFault) as caught:
            rows.asked.write()
        assert str(caught.value) == f"at {b} in the batch: agent {AGENTS[columns[b]]!r}: {why}"
        return
    assert rows.asked.write().tolist() == cells
    for b in range(NUM_ENVS):
        asked = b < len(said)
        assert rows.asked_index[b] == (columns[b] if asked else -1)
        assert rows.observation[b].tolist() == (written[b][0] if asked else [7.0] * 4)


def test_who_is_not_asked_keeps_the_row() -> None:
    rows = Rows(SMALL)
    board = np.ones((2, 2), dtype=np.int8)
    rows.asked.ask(4, board, None)
    assert rows.asked.write().tolist() == [4]
    board.fill(0)
    assert rows.observation.tolist() == [[7.0] * 4, [7.0] * 4, [1.0] * 4]
    assert rows.asked_index.tolist() == [-1, -1, 0]
    assert rows.asked.write().tolist() == []
    rows.asked.ask(5, board, None)
    rows.asked.clear()
    assert rows.asked.write().tolist() == []
    assert rows.asked_index.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("where", ["observation", "info"])
def test_masks_of_all_kinds(where: Literal["observation", "info"]) -> None:
    def ask(*masks: object) -> list[list[bool]]:
        rows = Rows(SMALL, where)
        board = np.zeros((2, 2), dtype=np.int8)
        for b, mask in enumerate(masks):
            if where == "info":
                rows.asked.ask(2 * b, board, {"action_mask": mask})
            else:
                rows.asked.ask(2 * b, {"observation": board, "action_mask": mask}, None)
        rows.asked.write()
        found: list[list[bool]] = rows.mask.tolist()
        return found[: len(masks)]

    bytes_, list_, bools = (
        np.array([0, 2, 0], dtype=np.int8),
        [1, 0, 0],
        np.array([True, False, True]),
    )
    middle, first, outer = [False, True, False], [True, False, False], [True, False, True]
    assert ask(bytes_) == [middle]
    assert ask(bytes_, list_, bools) == [middle, first, outer]
    # No integer dtype holds both masks, so they cannot be stacked.
    assert ask(np.array([0, 1, 0], dtype=np.uint64), np.array([1, 0, 0])) == [middle, first]
    rule = r"at 1 in the batch: agent 'a': an action mask must be integers or bool of shape \(3,\)"
    for wrong in ([1.0, 0.0, 1.0], np.ones(2, dtype=np.bool_), np.ones((3, 1), dtype=np.bool_)):
        with pytest.raises(EnvironmentFault, match=f"{rule}, got"):
            ask(bytes_, wrong)
    with pytest.raises(EnvironmentFault, match=r"at 1 in the batch: agent 'a': .* allow an action"):
        ask(bytes_, np.zeros(3, dtype=np.int8))


def test_without_a_mask_in_info_everything_is_legal() -> None:
    rows = Rows(SMALL, "info")
    for b, info in enumerate((None, {}, {"action_mask": np.array([0, 1, 0])})):
        rows.asked.ask(2 * b, np.zeros((2, 2), dtype=np.int8), info)
    rows.asked.write()
    assert rows.mask.tolist() == [[True] * 3, [True] * 3, [False, True, False]]
