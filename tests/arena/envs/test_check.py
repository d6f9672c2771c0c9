from __future__ import annotations

import pytest

from arena.envs.check import check_environment


@pytest.mark.parametrize("environment_id", ["classic/tictactoe-v3", "mpe2/simple_spread_v3"])
def test_real_environments_work(environment_id: str, assets: str) -> None:
    report = check_environment(environment_id, kwargs={}, launch_directory=assets, seconds=0.3)
    assert report.problems == []
    assert report.deterministic
    assert report.episodes > 0
    assert report.mean_length is not None
    assert report.mean_length > 4.0
    assert report.env_steps_per_s > 100.0
    assert report.agent_steps_per_s >= report.env_steps_per_s


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "problem"),
    [
        ("environments:AliasingTurns", {}, "a returned observation of agent 'a' changed later"),
        ("environments:UnseededTurns", {}, "two runs with one seed differ"),
        ("environments:FaultyTurns", {"fault": "nan_reward"}, "a reward must be finite"),
        ("environments:NeverRemovesTheDead", {}, "PettingZoo's api_test"),
    ],
)
def test_problems_are_named(
    environment_id: str, kwargs: dict[str, object], problem: str, assets: str
) -> None:
    report = check_environment(environment_id, kwargs=kwargs, launch_directory=assets, seconds=0.1)
    assert any(problem in found for found in report.problems), report.problems


def test_a_mean_length_by_hand(assets: str) -> None:
    report = check_environment(
        "environments:AliasingTurns", kwargs={}, launch_directory=assets, seconds=0.1
    )
    # Its script has twelve decisions.
    assert report.mean_length == 12.0
