"""Chance is a fact of an environment, found where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs.describe import environment_facts
from arena.envs.inspect import inspect_environment
from arena.envs.probe.chance import find_chance


@pytest.mark.parametrize(
    ("environment_id", "chance"),
    [
        ("classic/rps_v2", False),
        ("openspiel:kuhn_poker", True),
        pytest.param("classic/tictactoe_v3", False, marks=pytest.mark.slow),
        pytest.param("openspiel:connect_four", False, marks=pytest.mark.slow),
        pytest.param("mpe2/simple_tag_v3", True, marks=pytest.mark.slow),
    ],
)
def test_chance_is_what_seeds_change(environment_id: str, chance: bool, assets: str) -> None:
    request = EnvironmentRequest(environment_id, launch_directory=assets)
    assert find_chance(environment_facts(request), request) == chance


@pytest.mark.slow
def test_the_child_finds_it_where_it_is_asked_for(assets: str) -> None:
    request = EnvironmentRequest("classic/rps_v2", launch_directory=assets)
    spec = inspect_environment(request)
    assert spec.chance is None
    asked = inspect_environment(replace(request, asks_chance=True))
    assert asked == replace(spec, chance=False)
    assert asked.digest == spec.digest
