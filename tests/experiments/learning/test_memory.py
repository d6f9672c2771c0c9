"""A T-maze, where what was seen at the start decides what is right at the end."""

from __future__ import annotations

import pytest

from experiments.learning.memory import measure


@pytest.mark.parametrize("core", ["gru", pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_memory_solves_the_maze(core: str) -> None:
    found = measure(core, seed=1, agent_steps=60_000, enough=0.95, updates_between=5)
    assert found.right >= 0.95


@pytest.mark.slow
@pytest.mark.long
def test_without_memory_half_of_the_turns_are_right() -> None:
    found = measure("none", seed=1, agent_steps=60_000, updates_between=40)
    assert 0.4 <= found.right <= 0.6
