from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.environment_spec import EnvironmentRequest
from arena.envs.checks.conformance import check_against
from arena.envs.openspiel.game import canonical_game_id, is_openspiel, openspiel_agent_spec
from arena.envs.registry import TWINS, canonical_id
from arena.envs.spaces.observations import describe

NUM_GAMES = 150


@pytest.mark.parametrize("environment_id", TWINS)
def test_the_twin_is_the_same_game(environment_id: str, assets: str) -> None:
    report = check_against(
        EnvironmentRequest(environment_id, launch_directory=assets),
        EnvironmentRequest(TWINS[environment_id], launch_directory=assets),
        num_games=NUM_GAMES,
        num_envs=32,
    )
    assert report.difference is None
    assert report.games >= NUM_GAMES
    assert report.decisions > 2 * NUM_GAMES


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment_id", TWINS)
def test_the_twin_is_the_same_game_for_long(environment_id: str, assets: str) -> None:
    report = check_against(
        EnvironmentRequest(environment_id, launch_directory=assets),
        EnvironmentRequest(TWINS[environment_id], launch_directory=assets),
        num_games=50_000,
        seed=11,
    )
    assert report.difference is None
    assert report.games >= 50_000


@pytest.mark.parametrize(
    "kwargs",
    [{"num_actions": 5, "max_cycles": 4}, {"max_cycles": 0}, {"max_cycles": 1}, {"num_actions": 7}],
)
def test_twins_of_rock_paper_scissors_s_kin(kwargs: dict[str, object], assets: str) -> None:
    report = check_against(
        EnvironmentRequest("classic/rps-v2", kwargs=kwargs, launch_directory=assets),
        EnvironmentRequest(TWINS["classic/rps-v2"], kwargs=kwargs, launch_directory=assets),
        num_games=100,
        num_envs=16,
    )
    assert report.difference is None


def test_ids_are_canonical() -> None:
    for environment_id in TWINS:
        canonical = canonical_game_id if is_openspiel(environment_id) else canonical_id
        assert canonical(environment_id) == environment_id


def test_what_openspiel_s_agents_see_and_do() -> None:
    spec = openspiel_agent_spec((30,), 3)
    assert spec.observation == describe(Box(-np.inf, np.inf, (30,), np.float32))
    assert spec.action == describe(Discrete(3))
    assert spec.mask == "observation"
