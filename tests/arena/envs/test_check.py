from __future__ import annotations

import pytest

from arena.envs.check import EnvironmentReport, check_environment
from arena.envs.findings import MENDS, SEE_README, finding_of
from arena.errors import EnvironmentFault


def check(environment_id: str, assets: str, **kwargs: object) -> EnvironmentReport:
    return check_environment(environment_id, kwargs=kwargs, launch_directory=assets, seconds=0.1)


@pytest.mark.parametrize("environment_id", ["classic/tictactoe-v3", "mpe2/simple_spread_v3"])
def test_real_environments_work(environment_id: str, assets: str) -> None:
    report = check(environment_id, assets)
    measured = report.measured
    assert report.problems == []
    assert report.deterministic
    assert report.aliased is None
    assert report.never_asked == ()
    assert len(report.contract) == 2
    assert all(report.contract.values())
    assert measured.episodes > 0
    assert measured.mean_length is not None
    assert measured.mean_length > 4.0
    assert measured.env_steps_per_s > 100.0
    assert measured.agent_steps_per_s >= measured.env_steps_per_s


def test_tictactoe_in_numbers(assets: str) -> None:
    report = check("classic/tictactoe-v3", assets)
    measured = report.measured
    assert report.turn_order == "player_1, player_2 in turn"
    assert (measured.reward_low, measured.reward_high) == (-1.0, 1.0)
    assert (measured.return_low, measured.return_high) == (-1.0, 1.0)
    assert measured.same_rewards == (("player_1",), ("player_2",))
    # From 9 free cells down to what is left at the end.
    assert 4.5 < measured.legal_mean["player_1"] < 6.5


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "problem", "mend"),
    [
        ("environments:UnseededTurns", {}, "runs with one seed", "np_random"),
        (
            "environments:FaultyTurns",
            {"fault": "nan_reward"},
            "agent 'b': a reward must be finite in float32, got nan",
            "divisions by zero",
        ),
        (
            "environments:FaultyTurns",
            {"fault": "wrong_shape"},
            "agent 'a': an observation must have shape (3,), got (2,)",
            "observation_space(agent).shape",
        ),
        (
            "environments:FaultyTurns",
            {"fault": "nan_observation"},
            "an observation must be finite in float32, got nan at position 1",
            "clip or rescale",
        ),
        (
            "environments:FaultyTurns",
            {"fault": "strange_agent"},
            "agent 'c' has a reward but is no possible agent",
            "possible_agents",
        ),
        (
            "environments:FaultyTurns",
            {"fault": "only_dead_on_turn"},
            "only dead agents are on turn",
            "_was_dead_step",
        ),
        (
            "environments:MaskedTurns",
            {"where": "info", "empty_at": 3},
            "decision 4 of the episode of reset(seed=7): agent 'b': an action mask must allow",
            "add one that passes",
        ),
        (
            "environments:MaskedTurns",
            {"where": "observation", "empty_at": 3},
            "agent 'b': an action mask must allow an action",
            "add one that passes",
        ),
        (
            "environments:ScriptedParallel",
            {"fault": "no_final_observation"},
            "agent 'b' was truncated and must have a last observation",
            "must still be returned",
        ),
        ("environments:NeverRemovesTheDead", {}, "PettingZoo's api_test", "import api_test"),
        (
            "broken:RefusesTheLastAction",
            {},
            "step(2) raised IndexError: tuple index out of range",
            "declare a smaller space, or mask",
        ),
        (
            "broken:ForgetsAnAgent",
            {},
            "step returned no rewards of agent 'b', who had acted",
            "an entry for every agent",
        ),
    ],
)
def test_problems_say_what_is_wrong_where_and_how_it_is_mended(
    environment_id: str, kwargs: dict[str, object], problem: str, mend: str, assets: str
) -> None:
    report = check(environment_id, assets, **kwargs)
    assert any(problem in found.problem and mend in found.mend for found in report.problems), (
        report.problems
    )


def test_arrays_that_are_written_again_are_noted(assets: str) -> None:
    report = check("environments:AliasingTurns", assets)
    assert report.problems == []
    assert report.aliased == "a"
    assert any("array.copy()" in note for note in report.notes)
    # Its script has twelve decisions.
    assert report.measured.mean_length == 12.0


def test_what_never_ends_and_never_pays_is_noted(assets: str) -> None:
    report = check("broken:NeverEnds", assets)
    assert report.measured.episodes == 0
    assert report.measured.mean_length is None
    assert any("no episode ended" in note for note in report.notes)
    assert any("nobody received any reward but 0" in note for note in report.notes)


def test_who_receives_the_same_is_found(assets: str) -> None:
    measured = check("broken:AsymmetricTeams", assets).measured
    assert measured.same_rewards == (("hunter_0", "hunter_1"), ("prey_0",))
    assert (measured.reward_low, measured.reward_high) == (-1.0, 1.0)


def test_every_mend_is_found_by_its_own_words() -> None:
    for fragment, mend in MENDS:
        assert finding_of(EnvironmentFault(f"agent 'a' {fragment} x")).mend == mend
    assert finding_of(EnvironmentFault("hm")).mend == SEE_README
    assert finding_of(EnvironmentFault("hm"), where="there").problem == "there: hm"


def test_pictures_that_never_change_are_noted(assets: str) -> None:
    report = check("broken:NeverDrawn", assets)
    assert report.problems == []
    noted = [note for note in report.notes if "the same at each of its decisions" in note]
    assert noted == [
        "agent 'a' (and 2 more) saw the same at each of its decisions, uint8(8, 8, 3) in [0, 0]: "
        "there is nothing to learn from, unless the game is so; some environments draw their "
        "pictures only with environment.kwargs.render_mode=rgb_array"
    ]


@pytest.mark.parametrize("environment_id", ["classic/rps-v2", "mpe2/simple_speaker_listener_v4"])
def test_observations_that_change_are_not_noted(environment_id: str, assets: str) -> None:
    report = check(environment_id, assets)
    assert not any("the same at each of its decisions" in note for note in report.notes)
