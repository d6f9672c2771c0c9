"""Delta-uniform sampling of the past, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populations.matchmaking.window import DELTA_UNIFORM, DeltaUniformRule
from tests.populations.matchmaking.toy_league import ghost, probabilities, request


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (0.0, [0.25, 0.25, 0.25, 0.25]),
        (0.5, [0.0, 0.0, 0.5, 0.5]),  # agent steps 50 of 100 are new enough, 49 are not
        (1.0, [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_delta_uniform_forgets_the_older_part(delta: float, expected: list[float]) -> None:
    asked = request(ghosts=[ghost(number) for number in (0, 49, 50, 100)])
    assert probabilities(DeltaUniformRule(delta=delta), asked) == expected


def test_delta_uniform_knows_the_beginning() -> None:
    # All ghosts are of step 0: the newest is as old as all.
    asked = request(ghosts=[ghost(0, policy=number) for number in range(3)])
    assert probabilities(DeltaUniformRule(delta=0.5), asked) == pytest.approx([1 / 3] * 3)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_the_newest_is_always_there_and_a_wider_part_has_all_of_a_narrower_one(
    agent_steps: list[int], delta: float
) -> None:
    asked = request(ghosts=[ghost(number) for number in agent_steps])
    found = probabilities(DeltaUniformRule(delta=delta), asked)
    assert found[int(np.argmax(agent_steps))] > 0.0
    wider = probabilities(DeltaUniformRule(delta=delta / 2.0), asked)
    assert all(much > 0.0 for much, little in zip(wider, found, strict=True) if little > 0.0)


def test_errors_name_the_rule_and_the_value() -> None:
    with pytest.raises(ValueError, match="less than or equal to 1"):
        DELTA_UNIFORM.settings.model_validate({"delta": 1.5})
