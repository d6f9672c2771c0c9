from __future__ import annotations

import pytest

from arena.rollout.calls import rollout_calls


@pytest.mark.parametrize(("agents_in_turn", "calls"), [(1, 33), (2, 33), (3, 50), (4, 66), (6, 99)])
def test_each_of_many_agents_in_turn_decides_as_often_as_one_of_two(
    agents_in_turn: int, calls: int
) -> None:
    assert rollout_calls(33, agents_in_turn=agents_in_turn) == calls
