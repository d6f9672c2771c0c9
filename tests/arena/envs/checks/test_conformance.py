"""Twins that lie are caught, and what lies is named; each story is checked by a replay by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.chance import episode_seed
from arena.envs.checks.conformance import (
    check_against,
    compare_environments,
    spec_difference,
)
from arena.envs.describe import environment_facts, populations_of
from arena.envs.registry import TWINS, make_environment
from arena.envs.turn_diff import Difference
from arena.errors import ConfigError
from tests.arena.samples import make_env

CONNECT_FOUR = "classic/connect_four-v3"
RPS_TWIN = TWINS["classic/rps-v2"]
TICTACTOE_TWIN = TWINS["classic/tictactoe-v3"]


def against_a_liar(name: str, assets: str) -> Difference:
    report = check_against(
        EnvironmentRequest(CONNECT_FOUR, launch_directory=assets),
        EnvironmentRequest(f"liars:{name}", launch_directory=assets),
        num_games=400,
        num_envs=16,
    )
    assert report.difference is not None
    assert report.games < 400
    return report.difference


def replayed(found: Difference) -> Any:
    """PettingZoo's own environment after the actions that a difference tells of."""
    assert found.seed is not None
    assert found.episode is not None
    assert found.call == len(found.actions)
    assert found.episode_seed == episode_seed(found.seed, episode=found.episode)
    env = make_environment(CONNECT_FOUR, kwargs={}, api="aec", launch_directory=".")
    env.reset(seed=found.episode_seed)
    for call in found.actions:
        ((agent, action),) = call.items()
        assert env.agent_selection == agent
        assert not any(env.terminations.values())
        env.step(action)
    return env


def columns_of(found: Difference) -> list[list[str]]:
    """The board by column, each from the bottom up: who has a stone there."""
    columns: list[list[str]] = [[] for _ in range(7)]
    for call in found.actions:
        ((agent, action),) = call.items()
        columns[action].append(agent)
    return columns


def lines_of_four(columns: Sequence[Sequence[str]], agent: str) -> set[tuple[int, int]]:
    """Directions (columns, rows) in which an agent has four in a row."""
    stones = {
        (column, row) for column, rows in enumerate(columns) for row, who in enumerate(rows)
        if who == agent
    }  # fmt: skip
    return {
        (right, up)
        for right, up in ((1, 0), (0, 1), (1, 1), (1, -1))
        for column, row in stones
        if all((column + k * right, row + k * up) in stones for k in range(4))
    }


def test_a_diagonal_that_does_not_win(assets: str) -> None:
    found = against_a_liar("MissingDiagonal", assets)
    assert (found.what, found.agent) == ("terminated", "player_0")
    assert (found.one, found.other) == ([True], [False])
    assert {"reward", "episode_over", "score"} <= set(found.also)
    (winner,) = found.actions[-1]
    assert lines_of_four(columns_of(found), winner) == {(1, 1)}
    env = replayed(found)
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.rewards[winner] == 1


def test_a_reward_to_the_wrong_seat(assets: str) -> None:
    found = against_a_liar("WrongSeat", assets)
    assert (found.what, found.agent) == ("reward", "player_0")
    env = replayed(found)
    assert found.one == [float(env.rewards["player_0"])]
    assert found.other == [float(env.rewards["player_1"])]
    assert found.also == ("score",)


def test_a_mask_that_comes_late(assets: str) -> None:
    found = against_a_liar("LateMask", assets)
    assert (found.what, found.also) == ("action_mask", ())
    assert isinstance(found.one, list)
    assert isinstance(found.other, list)
    env = replayed(found)
    assert env.agent_selection == found.agent
    mask = env.observe(found.agent)["action_mask"]
    assert found.one == [bool(legal) for legal in mask]
    at = found.position
    assert found.one[:at] == found.other[:at]
    assert found.one[at] != found.other[at]
    # The last action has filled this column.
    assert (found.one[at], len(columns_of(found)[at])) == (False, 6)
    assert found.actions[-1] == {next(iter(found.actions[-1])): at}


def test_an_observation_of_the_other(assets: str) -> None:
    found = against_a_liar("SwappedPlanes", assets)
    assert (found.what, found.agent, found.call) == ("observation", "player_1", 1)
    env = replayed(found)
    assert found.one == env.observe("player_1")["observation"].flatten().tolist()
    ((_, column),) = found.actions[0].items()
    # The bottom row is the last of six; the second plane has the other player's stones.
    assert found.position == 2 * (7 * 5 + column)


def test_facts_are_compared_first(assets: str) -> None:
    def facts(environment_id: str, **kwargs: object) -> EnvironmentSpec:
        return environment_facts(
            EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets)
        )

    def what(one: EnvironmentSpec, other: EnvironmentSpec) -> tuple[str, str | None] | None:
        found = spec_difference(one, other)
        return None if found is None else (found.what, found.agent)

    rps, tictactoe = facts(RPS_TWIN), facts(TICTACTOE_TWIN)
    assert what(rps, facts("classic/rps-v2")) is None
    assert what(rps, tictactoe) == ("api", None)
    assert what(tictactoe, facts(CONNECT_FOUR)) == ("agents", None)
    assert what(rps, facts(RPS_TWIN, num_actions=5)) == ("observation space", "player_0")
    agent = rps.agent_specs["player_1"]
    for changed, name in (
        (dataclasses.replace(agent, action={"kind": "Discrete", "n": 4}), "action space"),
        (dataclasses.replace(agent, mask="info"), "mask"),
    ):
        specs = {**rps.agent_specs, "player_1": changed}
        assert what(rps, dataclasses.replace(rps, agent_specs=specs)) == (name, "player_1")


def test_different_agents_are_never_stepped(assets: str) -> None:
    report = check_against(
        EnvironmentRequest(CONNECT_FOUR, launch_directory=assets),
        EnvironmentRequest(TICTACTOE_TWIN, launch_directory=assets),
        num_games=10,
    )
    found = report.difference
    assert found is not None
    assert found.one == ["player_0", "player_1"]
    assert found.other == ["player_1", "player_2"]
    assert (report.games, report.decisions) == (0, 0)


def test_an_original_is_the_same_as_itself_and_progress_is_told(assets: str) -> None:
    told: list[int] = []
    report = check_against(
        EnvironmentRequest("classic/tictactoe-v3", launch_directory=assets),
        EnvironmentRequest("classic/tictactoe-v3", launch_directory=assets),
        num_games=30,
        num_envs=4,
        progress=told.append,
    )
    assert report.difference is None
    assert told == sorted(told)
    assert told[-2] < 30 <= told[-1] == report.games
    assert report.decisions == 4 * len(told)
    assert min(report.env_steps_per_s) > 0.0


@pytest.mark.slow
def test_seeds_decide_what_is_played(assets: str) -> None:
    """Two comparisons with one seed play the same games, with another seed others."""

    def decisions(seed: int) -> int:
        return check_against(
            EnvironmentRequest("openspiel:leduc_poker", launch_directory=assets),
            EnvironmentRequest(TWINS["openspiel:leduc_poker"], launch_directory=assets),
            num_games=60,
            num_envs=4,
            seed=seed,
        ).decisions

    assert decisions(1) == decisions(1)
    assert len({decisions(seed) for seed in range(1, 4)}) > 1


def test_what_cannot_be_compared(assets: str) -> None:
    spec = environment_facts(EnvironmentRequest(RPS_TWIN, launch_directory=assets))
    populations = populations_of(spec)
    three, four = make_env(spec, num_envs=3), make_env(spec, num_envs=4)
    with pytest.raises(ValueError, match="equally many environments, at least one, got 3 and 4"):
        compare_environments(three, four, populations=populations, actions={}, num_games=1, seed=1)
    with pytest.raises(ValueError, match="num_games must be at least 1, got 0"):
        compare_environments(four, four, populations=populations, actions={}, num_games=0, seed=1)
    with pytest.raises(ConfigError, match="no environment 'classic/nothing-v1'"):
        check_against(
            EnvironmentRequest("classic/nothing-v1", launch_directory=assets),
            EnvironmentRequest(CONNECT_FOUR, launch_directory=assets),
            num_games=1,
        )
