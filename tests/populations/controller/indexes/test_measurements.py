"""Rules for alerts about training, by hand."""

from __future__ import annotations

import math

import pytest

from arena.types import PolicyId
from populations.controller.indexes.measurements import (
    GOOD_LOSS,
    HIGH_LOSS,
    LONGEST_STEPS,
    MIN_ASSIGNMENTS,
    MIN_EPISODES,
    RULES,
    Trained,
    entropy_bounds,
)
from populations.controller.indexes.raised_alerts import Alerts
from populations.records.rows import PolicyRow

POLICY = PolicyId("player/p000")


def trained(
    measured: Alerts, metrics: dict[str, float], *, seconds: float = 1.0, weighs: bool = False
) -> Trained:
    """Return what rules see after an assignment with these metrics."""
    measured.measure(POLICY, "player", metrics, duration_s=seconds)
    return Trained(
        policy=PolicyRow(policy=POLICY, population="player", index=0, hyperparameters={}),
        metrics=metrics,
        window=measured.windows[POLICY],
        unended_s=measured.unended_s["player"],
        episode_length=0.0,
        num_envs=8,
        action={"kind": "Discrete", "n": 4},
        weighs_rewards=weighs,
    )


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_nothing_where_metrics_say_nothing(name: str) -> None:
    assert RULES[name](trained(Alerts(), {})) is None


def test_episodes_must_end_within_the_longest_that_are_known() -> None:
    measured, rule = Alerts(), RULES["no_episode_ended"]
    metrics = {"episode/count": 0.0, "rollout/steps_count": LONGEST_STEPS / 2}
    assert rule(trained(measured, metrics)) == ""
    assert rule(trained(measured, metrics)) == ""
    said = rule(trained(measured, metrics))
    assert said == "no episode has ended in 7,500 calls of step of each of 8 environments"
    assert rule(trained(measured, {**metrics, "episode/count": 1.0})) == ""
    assert measured.windows[POLICY].unended_steps == 0.0


def test_slow_environments_are_told_of_after_five_minutes() -> None:
    measured, rule = Alerts(), RULES["no_episode_ended"]
    metrics = {"episode/count": 0.0, "rollout/steps_count": 10.0}
    assert rule(trained(measured, metrics, seconds=299.0)) == ""
    assert rule(trained(measured, metrics, seconds=2.0)) != ""


def constant(reward: float, *, deviation: float = 0.0) -> dict[str, float]:
    return {
        "reward/min": reward,
        "reward/max": reward,
        "episode/count": float(MIN_EPISODES),
        "episode/return_mean": 10.0 * reward,
        "episode/return_deviation": deviation,
    }


def test_a_constant_reward_is_told_of_once_that_is_sure() -> None:
    measured, rule = Alerts(), RULES["reward_constant"]
    said = [rule(trained(measured, constant(0.0))) for _ in range(MIN_ASSIGNMENTS)]
    assert said[:-1] == [""] * (MIN_ASSIGNMENTS - 1)
    assert said[-1] == "in 600 episodes every reward was 0"
    assert rule(trained(measured, {**constant(0.0), "reward/max": 1.0})) == ""


def test_a_reward_for_each_step_is_right_where_returns_differ() -> None:
    for deviation, is_told in ((0.0, True), (2.0, False)):
        measured = Alerts()
        for _ in range(MIN_ASSIGNMENTS):
            last = trained(measured, constant(1.0, deviation=deviation))
        assert (RULES["reward_constant"](last) != "") == is_told


def test_other_rewards_than_the_environments_are_not_judged() -> None:
    assert RULES["reward_constant"](trained(Alerts(), constant(0.0), weighs=True)) is None


@pytest.mark.parametrize(
    ("action", "bounds"),
    [
        ({"kind": "Discrete", "n": 4}, (0.01 * math.log(4), 0.02 * math.log(4))),
        ({"kind": "MultiDiscrete", "nvec": [[2, 3], [4, 1]]}, (0.01 * math.log(24),) * 1),
        ({"kind": "MultiBinary", "shape": [3]}, (0.03 * math.log(2), 0.06 * math.log(2))),
        ({"kind": "Box", "shape": [2], "dtype": "float32"}, (-6.0, -5.0)),
        ({"kind": "Box", "shape": [2], "dtype": "int64"}, None),
        ({"kind": "Discrete", "n": 1}, None),
    ],
)
def test_entropy_is_bounded_by_what_there_is_to_choose(
    action: dict[str, object], bounds: tuple[float, ...] | None
) -> None:
    found = entropy_bounds(action)
    assert (found is None) == (bounds is None)
    if found is not None and bounds is not None:
        assert found[: len(bounds)] == pytest.approx(bounds)


def test_between_high_and_good_a_loss_says_nothing() -> None:
    rule = RULES["loss_high"]
    found = [
        rule(trained(Alerts(), {"loss/value": value}))
        for value in (GOOD_LOSS - 1.0, GOOD_LOSS, HIGH_LOSS, HIGH_LOSS + 1.0)
    ]
    assert found[:3] == ["", None, None]
    assert found[3] is not None
    assert found[3].startswith("its value loss is 11, in units")


def test_observations_without_spread_are_constant() -> None:
    rule = RULES["observations_constant"]
    assert rule(trained(Alerts(), {"observation/spread": 0.1})) == ""
    assert rule(trained(Alerts(), {"observation/spread": 0.0})) != ""
