"""What is measured beside what is learned from, compared with numpy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.envs.base import Turn
from arena.envs.episode_metrics import LARGEST, Report
from arena.experience import Rollout
from arena.rollout.calls import rollout_calls
from arena.rollout.measured import (
    SAMPLED_ROWS,
    Measured,
    Measures,
    Spread,
    observation_spread,
    with_successes,
)
from tests.arena.samples import make_rollout, make_turn


def turn(reward: torch.Tensor, *figures: Report) -> Turn:
    return make_turn(reward, score=reward, figures=figures)


def test_four_figures_of_many_numbers() -> None:
    values = np.random.default_rng(3).normal(1e6, 2.0, size=500)
    spread = Spread()
    for value in values.tolist():
        spread.add(value)
    assert spread.metrics("environment/height") == pytest.approx(
        {
            "environment/height_mean": values.mean(),
            "environment/height_min": values.min(),
            "environment/height_max": values.max(),
            "environment/height_deviation": values.std(),
        }
    )


def rollout(*, trained: int, decisions: int) -> Rollout:
    return make_rollout(torch.zeros(trained, 1), num_decisions=decisions)


def test_the_trained_share_is_that_of_all_rollouts_together() -> None:
    found = Measures()
    # The rollout of a custom algorithm does not report decisions of other policies.
    found.add_rollout(rollout(trained=0, decisions=0))
    assert found.metrics() == {"rollout/steps_count": 0.0}
    found.add_rollout(rollout(trained=3, decisions=4))
    found.add_rollout(rollout(trained=0, decisions=8))
    assert found.metrics()["rollout/trained_share"] == 3 / 12
    # Only one of the two rollouts had two observations, which were equal.
    assert found.metrics()["observation/spread"] == 0.0


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=6), min_size=1, max_size=4))
def test_measures_of_parts_add_up_to_those_of_all(parts: list[list[float]]) -> None:
    def measured(values: list[float]) -> Measures:
        found = Measures(num_steps=5, num_ignored=len(values), num_decisions=2 * len(values))
        found.low, found.high = min(values, default=None), max(values, default=None)
        for value in values:
            found.figures.setdefault("height", Spread()).add(value)
        return found

    merged = Measures()
    for part in parts:
        merged.merge(measured(part))
    whole = measured([value for part in parts for value in part])
    assert merged.metrics() == pytest.approx(whole.metrics(), rel=1e-6, abs=1e-2)


def test_rewards_and_figures_are_those_of_the_players_own_agents() -> None:
    table = torch.tensor([[0, 1], [1, 0], [1, 1]])
    measured = Measured(num_envs=3, num_agents=2, num_players=8, device=torch.device("cpu"))
    measured.add(
        turn(
            torch.tensor([[1.0, -9.0], [8.0, 0.5], [7.0, 7.0]]),
            Report(0, 0, {"goals": 2.0}, 0),
            Report(0, 1, {"goals": 50.0}, 3),
            Report(1, 1, {"goals": 4.0, "won": 1.0}, 1),
        ),
        table=table,
    )
    measured.add(turn(torch.tensor([[-2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])), table=table)
    assert measured.of_player(0, table=table).metrics() == {
        "rollout/steps_count": 2.0,
        "reward/min": -2.0,
        "reward/max": 3.0,
        "environment/goals_mean": 3.0,
        "environment/goals_min": 2.0,
        "environment/goals_max": 4.0,
        "environment/goals_deviation": 1.0,
        "environment/won_mean": 1.0,
        "environment/won_min": 1.0,
        "environment/won_max": 1.0,
        "environment/won_deviation": 0.0,
        "environment/ignored_count": 1.0,
    }
    nowhere = measured.of_player(7, table=table).metrics()
    assert nowhere == {"rollout/steps_count": 2.0}, "it sits nowhere"


def test_a_return_says_whether_the_agents_of_ended_episodes_have_succeeded() -> None:
    ended = dataclasses.replace(
        turn(torch.zeros(3, 2), Report(0, 1, {"success": 1.0, "goals": 2.0}, 1)),
        episode_over=torch.tensor([True, False, True]),
        void=torch.tensor([False, False, True]),
    )
    # A reward of 0.7 is slightly less than 0.7 in float32.
    returns = torch.tensor([[0.7, 0.6], [9.0, 9.0], [9.0, 9.0]]).double()
    told = with_successes(ended, returns=returns, at_least=0.7)
    assert [*told.figures] == [
        Report(0, 1, {"goals": 2.0}, 1),
        Report(0, 0, {"success": 1.0}, 0),
        Report(0, 1, {"success": 0.0}, 0),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_observations_differ_by_their_widest_number(dtype: torch.dtype) -> None:
    rows = torch.full((5000, 3), 7, dtype=dtype)
    assert observation_spread(rows) == 0.0
    rows[4321, 1] = 9
    assert observation_spread(rows) == 2.0, "where only one differs, all are looked at"
    rows[::2, 2] = 200
    assert observation_spread(rows) == 193.0
    assert observation_spread(rows[:0]) == 0.0
    assert len(rows) > 2 * SAMPLED_ROWS


def test_the_largest_numbers_differ_by_a_finite_number() -> None:
    assert observation_spread(torch.tensor([[-LARGEST], [LARGEST]])) == LARGEST


def test_a_turn_without_figures_costs_no_copy_of_the_table() -> None:
    class Unreadable:
        def __getitem__(self, _: object) -> object:
            raise AssertionError("it was read")

    measured = Measured(num_envs=1, num_agents=1, num_players=1, device=torch.device("cpu"))
    empty = dataclasses.replace(turn(torch.zeros(1, 1)), figures=())
    measured.add(empty, table=Unreadable())  # type: ignore[arg-type]


@pytest.mark.parametrize(("agents_in_turn", "calls"), [(1, 33), (2, 33), (3, 50), (4, 66), (6, 99)])
def test_each_of_many_agents_in_turn_decides_as_often_as_one_of_two(
    agents_in_turn: int, calls: int
) -> None:
    assert rollout_calls(33, agents_in_turn=agents_in_turn) == calls
