"""Which opponents each simple rule draws: by hand, and against a sorted list."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.matchmaking.drawing import GhostMemory
from populations.matchmaking.latest import LatestMatchmaker
from populations.matchmaking.quality import MAX_SPREAD, QualityRule, lowered_quality
from populations.matchmaking.rating_proximate import RatingProximateRule, expected_scores
from populations.matchmaking.window import (
    DELTA_UNIFORM,
    UNIFORM,
    DeltaUniformRule,
    UniformRule,
    WindowRule,
    newest,
)
from tests.populations.matchmaking.toy_league import (
    by_player,
    ghost,
    latest,
    probabilities,
    request,
    shares,
)


def test_window_draws_only_from_the_newest() -> None:
    asked = request(ghosts=[ghost(number) for number in (30, 10, 40, 20)])
    assert probabilities(WindowRule(window=2), asked) == [0.5, 0.0, 0.5, 0.0]
    assert probabilities(WindowRule(window=9), asked) == [0.25] * 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 45))
def test_of_equally_old_ghosts_those_that_came_later_are_newer(
    agent_steps: list[int], num: int
) -> None:
    ordered = sorted(range(len(agent_steps)), key=lambda index: (agent_steps[index], index))
    assert newest(np.array(agent_steps), num=num).tolist() == sorted(ordered[-num:])


def test_errors_name_the_rule_and_the_value() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        WindowRule(window=0)


def test_uniform_draws_ghosts_of_all_policies_alike() -> None:
    assert probabilities(UniformRule(), request(ghosts=5)) == [0.2] * 5


def test_to_uniform_neither_age_nor_results_matter() -> None:
    asked = request(
        ghosts=[ghost(1), ghost(10**9, policy=7)], rates={ghost(1).player: 0.0}, trainee_rating=0.0
    )
    assert probabilities(UniformRule(), asked) == [0.5, 0.5]


def test_uniform_draws_nothing_and_reads_no_setting() -> None:
    rng = np.random.default_rng(3)
    UniformRule().weights(request(), rng=rng)
    assert rng.random() == np.random.default_rng(3).random()
    assert not UNIFORM.settings.model_fields


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (0.0, [0.25, 0.25, 0.25, 0.25]),
        (0.5, [0.0, 0.0, 0.5, 0.5]),  # agent steps 50 of 100 are new enough, 49 are not
        (1.0, [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_delta_uniform_forgets_the_older_part(delta: float, expected: list[float]) -> None:
    asked = request(ghosts=[ghost(number) for number in (0, 49, 50, 100)])
    assert probabilities(DeltaUniformRule(delta=delta), asked) == expected


def test_delta_uniform_knows_the_beginning() -> None:
    # All ghosts are of step 0: the newest is as old as all.
    asked = request(ghosts=[ghost(0, policy=number) for number in range(3)])
    assert probabilities(DeltaUniformRule(delta=0.5), asked) == pytest.approx([1 / 3] * 3)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_the_newest_is_always_there_and_a_wider_part_has_all_of_a_narrower_one(
    agent_steps: list[int], delta: float
) -> None:
    asked = request(ghosts=[ghost(number) for number in agent_steps])
    found = probabilities(DeltaUniformRule(delta=delta), asked)
    assert found[int(np.argmax(agent_steps))] > 0.0
    wider = probabilities(DeltaUniformRule(delta=delta / 2.0), asked)
    assert all(much > 0.0 for much, little in zip(wider, found, strict=True) if little > 0.0)


def test_x_delta() -> None:
    with pytest.raises(ValueError, match="less than or equal to 1"):
        DELTA_UNIFORM.settings.model_validate({"delta": 1.5})


def test_latest_is_mirror_self_play_in_the_own_population() -> None:
    asked = request(ghosts=5, others=[latest(1), latest(2)])
    assert shares(LatestMatchmaker(), asked, num_draws=20) == {"mirror": 1.0}


def test_of_another_population_the_latest_are_alike_and_ghosts_are_not_met() -> None:
    prey = [latest(number, population="prey") for number in range(4)]
    asked = request(ghosts=5, others=prey, is_own=False, num_opponents=1)
    found = shares(LatestMatchmaker(), asked, num_draws=4000)
    assert found == pytest.approx({player.player: 0.25 for player in prey}, abs=0.03)


def test_where_no_other_is_active_its_ghosts_stand_in() -> None:
    ghosts = [ghost(number) for number in (1, 2)]
    asked = request(ghosts=ghosts, is_own=False)
    found = LatestMatchmaker().distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, found) == {one.player: 0.5 for one in ghosts}


def test_rating_proximate_by_hand() -> None:
    # 400 points are 10:1: P = 10/11 and 1/11, (P - 1/2)^2 = (9/22)^2; s = 1/6.
    asked = request(
        ghosts=4,
        ratings={ghost(0).player: 600.0, ghost(1).player: 1000.0, ghost(2).player: 1400.0},
        trainee_rating=1000.0,
    )
    far = math.exp(-((9 / 22) ** 2) / (2 / 36))
    expected = np.array([far, 1.0, far, 1.0])  # who is unrated counts as even
    found = probabilities(RatingProximateRule(rating_width=1 / 6), asked)
    assert found == pytest.approx((expected / expected.sum()).tolist())


def test_an_unrated_trainee_meets_all_alike() -> None:
    asked = request(ghosts=2, ratings={ghost(0).player: 3000.0})
    assert probabilities(RatingProximateRule(rating_width=1 / 6), asked) == [0.5, 0.5]


def test_expected_scores_stand_any_difference() -> None:
    found = expected_scores(0.0, np.array([-1e9, 0.0, 400.0, 1e9, np.nan]))
    assert found == pytest.approx([1.0, 0.5, 1 / 11, 0.0, 0.5], abs=1e-12)


def test_x_prox() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        RatingProximateRule(rating_width=0.0)


def test_quality_is_a_softmax() -> None:
    asked = request(ghosts=[ghost(n, quality=q) for n, q in enumerate((0.0, -math.log(3), 0.0))])
    assert probabilities(QualityRule(), asked) == pytest.approx([3 / 7, 1 / 7, 3 / 7])


def test_a_beaten_ghost_loses_quality_by_hand() -> None:
    # p = 1/4 of four alike: one win costs eta / (4 * 1/4) = eta.
    assert lowered_quality(np.zeros(4), 1, num_wins=1, quality_step=0.01) == pytest.approx(-0.01)
    # A ghost with p = 1/10 of three (weights 1, 8, 1) loses eta / (3 / 10).
    qualities = np.log([1.0, 8.0, 1.0])
    after = lowered_quality(qualities, 2, num_wins=1, quality_step=0.03)
    assert after == pytest.approx(-0.1)
    assert lowered_quality(qualities, 2, num_wins=0, quality_step=0.03) == 0.0


def test_many_wins_are_one_after_the_other() -> None:
    qualities = np.array([0.3, -0.2, 0.0])
    one_by_one = qualities.copy()
    for _ in range(7):
        weights = np.exp(one_by_one)
        one_by_one[0] -= 0.05 * weights.sum() / (3 * weights[0])
    found = lowered_quality(qualities, 0, num_wins=7, quality_step=0.05)
    assert found == pytest.approx(one_by_one[0], rel=1e-12)


@settings(deadline=None)
@given(
    qualities=st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=20),
    num_wins=st.integers(0, 10_000),
    step=st.floats(1e-4, 1.0),
)
def test_quality_never_rises_and_stays_finite(
    qualities: list[float], num_wins: int, step: float
) -> None:
    before = np.array(qualities)
    after = lowered_quality(before, 0, num_wins=num_wins, quality_step=step)
    assert math.isfinite(after)
    assert after <= before[0] + 1e-9
    assert after >= min(before[0], before.max() - MAX_SPREAD) - 1e-9


def test_the_rule_keeps_one_number_for_each_ghost() -> None:
    rule = QualityRule(quality_step=0.03)
    assert isinstance(rule, GhostMemory)
    assert rule.number_of_new(np.zeros(0)) == 0.0
    assert rule.number_of_new(np.array([-0.5, -0.2, -3.0])) == -0.2
    qualities = np.log([1.0, 8.0, 1.0])
    assert rule.number_after(qualities, 2, num_wins=1) == pytest.approx(-0.1)


def test_a_quality_far_below_the_limit_stays() -> None:
    qualities = np.array([0.0, -800.0])
    assert lowered_quality(qualities, 1, num_wins=1, quality_step=0.01) == -800.0
