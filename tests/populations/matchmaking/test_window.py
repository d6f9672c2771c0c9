"""The newest ghosts, by hand and against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.matchmaking.window import WindowRule, newest
from tests.populations.matchmaking.toy_league import ghost, probabilities, request


def test_window_draws_only_from_the_newest() -> None:
    asked = request(ghosts=[ghost(number) for number in (30, 10, 40, 20)])
    assert probabilities(WindowRule(window=2), asked) == [0.5, 0.0, 0.5, 0.0]
    assert probabilities(WindowRule(window=9), asked) == [0.25] * 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 45))
def test_of_equally_old_ghosts_those_that_came_later_are_newer(
    agent_steps: list[int], num: int
) -> None:
    ordered = sorted(range(len(agent_steps)), key=lambda index: (agent_steps[index], index))
    assert newest(np.array(agent_steps), num=num).tolist() == sorted(ordered[-num:])


def test_errors_name_the_rule_and_the_value() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        WindowRule(window=0)
