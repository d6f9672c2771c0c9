"""Agents that are numbers play as agents of the same names as text do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pettingzoo.test import api_test, parallel_api_test

from arena.envs.pettingzoo.text_names import with_text_names
from arena.errors import ConfigError
from tests.arena.envs.conftest import Make, play_batched
from tests.assets.environments import ScriptedParallel, ScriptedTurns

TURNS = (
    {"agent": 0, "join": [2]},
    {"agent": 1, "terminate": [1]},
    {"agent": 2, "truncate": [0]},
    {"agent": 2},
)
AT_ONCE: tuple[Mapping[str, Any], ...] = ({"join": [2]}, {"hide": [1], "terminate": [0]}, {}, {})


def as_text(value: Any) -> Any:
    """The same script about agents that are named by text."""
    if isinstance(value, Mapping):
        return {key: as_text(inner) for key, inner in value.items()}
    return list(map(as_text, value)) if isinstance(value, list | tuple) else str(value)


@pytest.mark.parametrize(
    ("name", "script", "truncated"),
    [("Turns", TURNS, {"0"}), ("Parallel", AT_ONCE, {"1", "2"})],
)
def test_numbers_play_as_their_texts_do(
    name: str, script: Any, truncated: set[str], make: Make
) -> None:
    kwargs = {"agents": [0, 1, 2], "first": [0, 1], "script": script}
    numbers, texts = (
        make(f"environments:Scripted{name}", kwargs=of) for of in (kwargs, as_text(kwargs))
    )
    assert numbers.spec.agents == ("0", "1", "2")
    played, expected = (
        play_batched(made, seeds=[1, 2, 3], num_steps=9) for made in (numbers, texts)
    )
    assert played == expected
    assert {agent for episode in played[0] for agent in episode.truncated} == truncated


def test_pettingzoos_own_tests_pass() -> None:
    turns, at_once = ScriptedTurns(agents=(0, 1, 2), script=TURNS), ScriptedParallel(agents=(0, 1))  # type: ignore[arg-type]
    api_test(with_text_names(turns, environment_id="x"), num_cycles=10)
    parallel_api_test(with_text_names(at_once, environment_id="x"), num_cycles=10)


def test_text_stays_as_it_is_and_equal_texts_are_refused() -> None:
    env = ScriptedTurns()
    assert with_text_names(env, environment_id="x") is env
    env.possible_agents = [0, "0"]
    with pytest.raises(
        ConfigError, match=r"x must have agents that differ as text, got \[0, '0'\]"
    ):
        with_text_names(env, environment_id="x")
