"""Every tensor of a turn is compared wherever it is defined, and nowhere else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv, Group, Turn, TurnWrapper
from arena.envs.checks.conformance import ConformanceReport, compare_environments
from arena.envs.describe import environment_facts, populations_of
from arena.envs.random_play import action_layouts, random_legal_actions
from arena.envs.registry import TWINS
from arena.envs.turn_diff import Difference
from arena.spaces import ActionLayout
from tests.arena.samples import make_env


def discrete(n: int) -> ActionLayout:
    return ActionLayout.from_json({"kind": "Discrete", "n": n, "start": 0}, continuous="squashed")


RPS_TWIN = TWINS["classic/rps-v2"]
TICTACTOE_TWIN = TWINS["classic/tictactoe-v3"]
KUHN_TWIN = TWINS["openspiel:kuhn_poker"]


class Tampered(TurnWrapper):
    """A `BatchedEnv` that tells one thing wrong, once."""

    def __init__(self, env: BatchedEnv, *, at_call: int, change: Callable[[Turn], Turn]) -> None:
        super().__init__(env)
        self._calls_left = at_call
        self._change = change

    def _changed(self, turn: Turn) -> Turn:
        self._calls_left -= 1
        return self._change(turn) if self._calls_left == -1 else turn


def compared(
    environment_id: str,
    assets: str,
    *,
    at_call: int,
    change: Callable[[Turn], Turn],
    num_games: int = 40,
) -> ConformanceReport:
    spec = environment_facts(EnvironmentRequest(environment_id, launch_directory=assets))
    populations = populations_of(spec)
    return compare_environments(
        make_env(spec, num_envs=4),
        Tampered(make_env(spec, num_envs=4), at_call=at_call, change=change),
        populations=populations,
        actions=action_layouts(spec, populations=populations),
        num_games=num_games,
        seed=3,
    )


def with_value(name: str, place: tuple[int, ...], value: float) -> Callable[[Turn], Turn]:
    """Change one number of a tensor of `Turn` or of its only group."""

    def change(turn: Turn) -> Turn:
        ((population, group),) = turn.groups.items()
        whole: Any = group if hasattr(group, name) else turn
        if name == "final_observation":
            tensor = turn.final_observation[population].clone()
            tensor[place] = value
            return dataclasses.replace(turn, final_observation={population: tensor})
        tensor = getattr(whole, name).clone()
        tensor[place] = value
        changed = dataclasses.replace(whole, **{name: tensor})
        if isinstance(changed, Group):
            return dataclasses.replace(turn, groups={population: changed})
        assert isinstance(changed, Turn)
        return changed

    return change


@pytest.mark.parametrize(
    ("name", "place", "value", "agent", "one", "other", "position"),
    [
        ("terminated", (2, 1), True, "player_1", [False], [True], 0),
        ("truncated", (1, 0), False, "player_0", [True], [False], 0),
        ("reward", (3, 1), 0.5, "player_1", None, [0.5], 0),
        ("reward", (0, 0), math.nan, "player_0", None, [None], 0),
        ("episode_over", (2,), False, None, [True], [False], 0),
        ("score", (2, 1), 0.25, None, None, None, 1),
        ("score", (0, 0), math.nan, None, None, None, 0),
        ("final_observation", (1, 1, 2), 7.0, "player_1", None, None, 2),
        ("observation", (3, 1, 0), 7.0, "player_1", None, None, 0),
    ],
)
def test_each_tensor_is_compared_at_an_episode_s_end(
    name: str,
    place: tuple[int, ...],
    value: float,
    agent: str | None,
    one: object,
    other: object,
    position: int,
    assets: str,
) -> None:
    """Rock, paper, scissors is cut off by its fifteenth call, in all environments."""
    report = compared(RPS_TWIN, assets, at_call=15, change=with_value(name, place, value))
    found = report.difference
    assert found is not None
    assert (found.what, found.environment_index, found.agent) == (name, place[0], agent)
    assert found.position == position
    assert found.also == ()
    if one is not None:
        assert found.one == one
    if other is not None:
        assert found.other == other
    # The next decision belongs to the next episode already.
    expected = (1, 0, 0) if name == "observation" else (0, 15, 15)
    assert (found.episode, found.call, len(found.actions)) == expected
    assert (report.games, report.decisions) == (0, 15 * 4 * 2)


def test_a_difference_in_a_later_episode(assets: str) -> None:
    change = with_value("reward", (1, 0), 0.25)
    report = compared(RPS_TWIN, assets, at_call=15 * 2 + 4, change=change)
    found = report.difference
    assert found is not None
    assert (found.what, found.environment_index, found.agent) == ("reward", 1, "player_0")
    assert (found.episode, found.call, report.games) == (2, 4, 8)
    assert [set(call) for call in found.actions] == [{"player_0", "player_1"}] * 4


def test_rewards_replay_from_seed_and_actions(assets: str) -> None:
    """The actions that are told are those that were played: the last of them pays the reward."""
    report = compared(RPS_TWIN, assets, at_call=7, change=with_value("reward", (2, 0), 0.25))
    found = report.difference
    assert found is not None
    last = found.actions[-1]
    beats = {(0, 2), (1, 0), (2, 1)}
    pair = (last["player_0"], last["player_1"])
    assert found.one == [float((pair in beats) - ((pair[1], pair[0]) in beats))]


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("agent_index", (2, 0), -1), ("action_mask", (2, 0, 4), False), ("observation", (2, 0, 3), 9)],
)
def test_the_first_decision_is_compared(
    name: str, place: tuple[int, ...], value: float, assets: str
) -> None:
    report = compared(TICTACTOE_TWIN, assets, at_call=0, change=with_value(name, place, value))
    found = report.difference
    assert found is not None
    assert (found.what, found.environment_index, found.agent) == (name, 2, "player_1")
    assert (found.episode, found.call, found.actions) == (0, 0, ())
    assert (report.decisions, report.env_steps_per_s) == (0, (0.0, 0.0))


def test_what_is_undefined_may_differ(assets: str) -> None:
    """Nobody is truncated here, so last observations mean nothing."""
    change = with_value("final_observation", (1, 1, 2), 7.0)
    assert compared(RPS_TWIN, assets, at_call=3, change=change).difference is None


def test_who_is_not_asked_may_see_anything(assets: str) -> None:
    """With a population each, one of the two is never asked."""
    spec = environment_facts(EnvironmentRequest(KUHN_TWIN, launch_directory=assets))
    populations = {"first": ("player_0",), "second": ("player_1",)}

    def scramble(turn: Turn) -> Turn:
        groups = {}
        for name, group in turn.groups.items():
            assert group.action_mask is not None
            idle = (group.agent_index < 0)[..., None]
            groups[name] = Group(
                agent_index=group.agent_index,
                observation=group.observation.masked_fill(idle, 5.0),
                action_mask=group.action_mask ^ idle,
            )
        return dataclasses.replace(turn, groups=groups)

    report = compare_environments(
        make_env(spec, num_envs=4, populations=populations),
        Tampered(make_env(spec, num_envs=4, populations=populations), at_call=0, change=scramble),
        populations=populations,
        actions={"first": discrete(2), "second": discrete(2)},
        num_games=20,
        seed=3,
    )
    assert report.difference is None


def test_the_lowest_environment_and_the_cause_come_first(assets: str) -> None:
    def change(turn: Turn) -> Turn:
        for name, place in (("observation", (1, 0, 0)), ("score", (1, 1)), ("reward", (1, 1))):
            turn = with_value(name, place, 0.25)(turn)
        return with_value("terminated", (3, 0), value=True)(turn)

    found = compared(RPS_TWIN, assets, at_call=2, change=change).difference
    assert found is not None
    assert (found.what, found.environment_index) == ("reward", 1)
    assert found.also == ("score", "observation")


def test_tensors_of_another_kind(assets: str) -> None:
    def change(turn: Turn) -> Turn:
        return dataclasses.replace(turn, reward=turn.reward.double())

    found = compared(RPS_TWIN, assets, at_call=2, change=change).difference
    assert found == Difference(
        what="reward", one="torch.float32 (4, 2)", other="torch.float64 (4, 2)"
    )


def test_a_mask_that_is_missing(assets: str) -> None:
    def change(turn: Turn) -> Turn:
        ((name, group),) = turn.groups.items()
        return dataclasses.replace(
            turn, groups={name: dataclasses.replace(group, action_mask=None)}
        )

    found = compared(TICTACTOE_TWIN, assets, at_call=1, change=change).difference
    assert found is not None
    assert (found.what, found.one) == ("action_mask", "torch.bool (4, 1, 9)")


def test_random_play_is_legal_and_uniform(assets: str) -> None:
    spec = environment_facts(EnvironmentRequest(TICTACTOE_TWIN, launch_directory=assets))
    env = make_env(spec, num_envs=2000)
    generator = torch.Generator().manual_seed(5)
    turn = env.reset(range(2000))
    first = random_legal_actions(turn, actions={"player_1": discrete(9)}, generator=generator)
    counts = first["player_1"].flatten().bincount(minlength=9)
    # The counts are binomial with mean 222 and standard deviation 14.
    assert 222 - 5 * 14 < int(counts.min()) <= int(counts.max()) < 222 + 5 * 14
    turn = env.step(first)
    second = random_legal_actions(turn, actions={"player_1": discrete(9)}, generator=generator)
    assert not (first["player_1"] == second["player_1"]).any()
