"""What is copied after a short look is what the long look would have written, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.envs.agent_row import AgentRow
from arena.envs.spaces import ObservationLayout
from arena.errors import EnvironmentFault

FLOATS = ObservationLayout(kind="Box", size=4, shape=(2, 2), dtype=np.dtype(np.float32))
BYTES = ObservationLayout(kind="Box", size=4, shape=(2, 2), dtype=np.dtype(np.int8))
DIGITS = ObservationLayout(kind="Discrete", size=4, shape=(), dtype=np.dtype(np.int64))

DTYPES = ("bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64", "<U2")


class Rows:
    """An agent's row, and the arrays it writes."""

    def __init__(
        self, layout: ObservationLayout, mask: Literal["observation", "info"] | None = None
    ) -> None:
        self.asked = np.full(1, -1)
        self.row = np.zeros(4, dtype=np.float32)
        self.mask = np.ones(3, dtype=np.bool_)
        self.final = np.zeros(4, dtype=np.float32)
        self.agent = AgentRow(
            "a",
            column=5,
            layout=layout,
            mask=mask,
            asked=self.asked,
            row=self.row,
            mask_row=self.mask,
            final=self.final,
        )


def observations() -> st.SearchStrategy[Any]:
    """Good ones, and ones of another dtype or shape."""

    def made(dtype: str, transposed: bool, shape: tuple[int, ...], numbers: list[int]) -> Any:
        array = np.resize(np.array(numbers), shape).astype(dtype)
        return array.T if transposed else array

    shapes = st.sampled_from([(2, 2), (2, 2), (2, 2), (4,), (1, 2), (2, 1), ()])
    numbers = st.lists(st.integers(0, 3), min_size=4, max_size=4)
    arrays = st.builds(made, st.sampled_from(DTYPES), st.booleans(), shapes, numbers)
    return st.one_of(arrays, st.just(None), st.integers(0, 3), st.just([[0, 1], [2, 3]]))


def refused(write: Callable[..., None], *args: object) -> str | None:
    """Why writing was refused."""
    try:
        write(*args)
    except EnvironmentFault as fault:
        return str(fault)
    return None


@pytest.mark.parametrize("layout", [FLOATS, BYTES, DIGITS], ids=["floats", "bytes", "digits"])
@given(said=st.lists(observations(), max_size=12))
def test_rows_are_those_of_the_layout(layout: ObservationLayout, said: list[Any]) -> None:
    rows, expected = Rows(layout), np.zeros(4, dtype=np.float32)
    for observation in said:
        refusal = refused(layout.flatten_into, expected, observation)
        said_of_it = refused(rows.agent.ask, observation, None)
        assert said_of_it == (refusal and f"agent 'a': {refusal}")
        assert refusal or (rows.row == expected).all()


def test_what_float32_cannot_hold_is_refused_with_its_value() -> None:
    rows = Rows(FLOATS)
    for _ in range(2):
        rows.agent.ask(np.zeros((2, 2)), None)
    with pytest.raises(EnvironmentFault, match=r"got 1e\+300 at position 3 of 4"):
        rows.agent.ask(np.array([[0.0, 1.0], [2.0, 1e300]]), None)


@pytest.mark.parametrize("where", ["observation", "info"])
def test_masks_are_looked_at_when_they_change(where: Literal["observation", "info"]) -> None:
    rows = Rows(BYTES, where)

    def ask(mask: object) -> list[bool]:
        board = np.zeros((2, 2), dtype=np.int8)
        if where == "info":
            rows.agent.ask(board, {"action_mask": mask})
        else:
            rows.agent.ask({"observation": board, "action_mask": mask}, None)
        return [bool(legal) for legal in rows.mask]

    assert ask(np.array([0, 1, 1], dtype=np.int8)) == [False, True, True]
    assert ask(np.array([0, 2, 0], dtype=np.int8)) == [False, True, False]
    assert ask([True, False, False]) == [True, False, False]
    assert ask(np.array([True, False, True])) == [True, False, True]
    rule = "an action mask must be integers or bool of shape"
    for wrong in ([1.0, 0.0, 1.0], np.ones(2, dtype=np.bool_), np.ones((3, 1), dtype=np.bool_)):
        with pytest.raises(EnvironmentFault, match=rf"agent 'a': {rule} \(3,\), got"):
            ask(wrong)


def test_without_a_mask_in_info_everything_is_legal() -> None:
    rows = Rows(BYTES, "info")
    rows.mask.fill(False)
    rows.agent.ask(np.zeros((2, 2), dtype=np.int8), None)
    assert rows.mask.all()


def test_how_far_an_agent_has_come() -> None:
    rows = Rows(DIGITS)
    assert (rows.agent.has_decided, rows.agent.has_ended) == (False, False)
    rows.agent.ask(2, None)
    assert rows.asked.tolist() == [5]
    assert (rows.agent.has_decided, rows.agent.has_ended) == (True, False)
    rows.agent.keep_final(3)
    assert rows.final.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert rows.row.tolist() == [0.0, 0.0, 1.0, 0.0]
    rows.agent.begin()
    assert (rows.agent.has_decided, rows.agent.has_ended) == (False, False)
