"""Which opponents each simple rule draws: by hand, and against a sorted list."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from populations.candidates import Candidate, FloatArray
from populations.matchmaking.drawing import RuleMatchmaker
from populations.matchmaking.pfsp import PfspRule, Weighting, draw_win_rates, pfsp_probabilities
from populations.matchmaking.psro import MetaSolver, PsroRule, solved
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
    SELF_PLAY,
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
    assert shares(SELF_PLAY, asked, num_draws=20) == {"mirror": 1.0}


def test_of_another_population_the_latest_are_alike_and_ghosts_are_not_met() -> None:
    prey = [latest(number, population="prey") for number in range(4)]
    asked = request(ghosts=5, others=prey, is_own=False, num_opponents=1)
    found = shares(SELF_PLAY, asked, num_draws=4000)
    assert found == pytest.approx({player.player: 0.25 for player in prey}, abs=0.03)


def test_where_no_other_is_active_its_ghosts_stand_in() -> None:
    ghosts = [ghost(number) for number in (1, 2)]
    asked = request(ghosts=ghosts, is_own=False)
    found = SELF_PLAY.distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, found) == {one.player: 0.5 for one in ghosts}


def test_rating_proximate_by_hand() -> None:
    # 400 points are 10:1: P = 10/11 and 1/11, (P - 1/2)^2 = (9/22)^2; s = 1/6.
    asked = request(
        ghosts=4,
        ratings={ghost(0).player: 600.0, ghost(1).player: 1000.0, ghost(2).player: 1400.0},
        trainee_rating=1000.0,
    )
    far = math.exp(-((9 / 22) ** 2) / (2 / 36))
    expected = np.array([far, 1.0, far, 1.0])  # an unrated ghost counts as even
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


def test_a_quality_far_below_the_limit_stays() -> None:
    qualities = np.array([0.0, -800.0])
    assert lowered_quality(qualities, 1, num_wins=1, quality_step=0.01) == -800.0


WEIGHTINGS = get_args(Weighting)


# Hand-computed for win rates 1, 1/2, 1/4, 1/20: 1 - x is 0, 1/2, 3/4, 19/20.
@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("squared", [0.0, 100, 225, 361]),  # in 1/400
        ("linear", [0.0, 10, 15, 19]),  # in 1/20
        ("linear_capped", [0.0, 1, 1, 1]),  # in 1/2
        ("variance", [0.0, 100, 75, 19]),  # in 1/400
        ("variance_left_rectified", [0.0, 100, 75, 36]),  # 0.1 * 0.9 for 1/20
    ],
)
def test_pfsp_probabilities_by_hand(weighting: Weighting, expected: list[float]) -> None:
    probabilities = pfsp_probabilities(np.array([1.0, 0.5, 0.25, 0.05]), weighting=weighting)
    assert probabilities == pytest.approx(np.array(expected) / sum(expected))


def test_win_rates_are_results_and_what_ratings_predict_with_the_weight_of_8_matches() -> None:
    # 400 Elo ahead: odds of 10:1. 3 of 4 won: (3 + 8 * 10 / 11) / (4 + 8).
    asked = request(
        ghosts=3,
        rates={ghost(0).player: 0.75},
        matches=4.0,
        ratings={ghost(0).player: 600.0, ghost(1).player: 600.0},
        trainee_rating=1000.0,
    )
    by_hand = [(3.0 + 80.0 / 11.0) / 12.0, 10.0 / 11.0, 0.5]
    assert asked.win_rates(asked.ghosts) == pytest.approx(by_hand)
    points, lost = asked.posterior(asked.ghosts)
    assert points == pytest.approx([3.0 + 80.0 / 11.0, 80.0 / 11.0, 4.0])
    assert points + lost == pytest.approx([12.0, 8.0, 8.0])


def test_whom_ratings_say_it_beats_is_not_met_for_being_unknown() -> None:
    # Of 9 ghosts without matches 8 are 800 Elo behind (1 of 101 lost), one is even.
    far: dict[str, float] = {ghost(number).player: 200.0 for number in range(8)}
    asked = request(ghosts=9, ratings={**far, ghost(8).player: 1000.0}, trainee_rating=1000.0)
    matchmaker = RuleMatchmaker(rule=PfspRule(weighting="squared"), latest_ratio=0.0)
    drawn = matchmaker.distribution(asked, rng=np.random.default_rng(0)).ghosts
    assert drawn[8] == pytest.approx(0.25 / (0.25 + 8 / 101**2))


def test_thompson_draws_from_the_posterior() -> None:
    rng = np.random.default_rng(3)
    drawn = draw_win_rates(
        np.repeat([4.0, 10.0], 4000), np.repeat([4.0, 6.0], 4000), rng=rng
    ).reshape(2, 4000)
    # The test is Kolmogorov-Smirnov's, with a fixed seed.
    assert stats.kstest(drawn[0], stats.beta(4, 4).cdf).pvalue > 0.01
    assert stats.kstest(drawn[1], stats.beta(10, 6).cdf).pvalue > 0.01


def test_thompson_knows_sure_predictions() -> None:
    ratings: dict[str, float] = {ghost(0).player: -1e5, ghost(1).player: 1e5}
    asked = request(ghosts=2, ratings=ratings, trainee_rating=0.0)
    drawn = draw_win_rates(*asked.posterior(asked.ghosts), rng=np.random.default_rng(0))
    assert drawn.tolist() == [1.0, 0.0]


def test_thompson_explores_more_than_the_mean() -> None:
    # Both are beaten 9 times of 10, but one of them in only ten matches.
    asked = request(ghosts=2, rates={ghost(0).player: 0.9}, matches=10.0)
    rule = PfspRule(weighting="squared", posterior="thompson")
    rng = np.random.default_rng(0)
    weights = np.array([rule.weights(asked, rng=rng) for _ in range(4000)])
    # E (1 - x)^2 = variance + (1 - mean)^2 of Beta(9 + 4, 1 + 4) and Beta(4, 4).
    expected = [dist.var() + (1 - dist.mean()) ** 2 for dist in (BETA, stats.beta(4, 4))]
    assert weights.mean(axis=0) == pytest.approx(expected, rel=0.06)


BETA = stats.beta(13, 5)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_who_beats_or_loses_to_everyone_meets_all_alike(weighting: Weighting) -> None:
    for rates in (np.ones(4), np.zeros(4)):
        assert pfsp_probabilities(rates, weighting=weighting) == pytest.approx([0.25] * 4)


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50), st.sampled_from(WEIGHTINGS))
def test_pfsp_probabilities_are_probabilities(rates: list[float], weighting: Weighting) -> None:
    probabilities = pfsp_probabilities(np.array(rates), weighting=weighting)
    assert np.all(np.isfinite(probabilities))
    assert np.all(probabilities >= 0.0)
    assert probabilities.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rates", [[1.5], [-0.1], [float("nan")]])
def test_pfsp_refuses_what_is_no_win_rate(rates: list[float]) -> None:
    with pytest.raises(ValueError, match=r"win_rates must be in \[0, 1\]"):
        pfsp_probabilities(np.array(rates), weighting="linear")


SOLVERS = get_args(MetaSolver)
GHOSTS = [ghost(10 * number) for number in range(4)]
# Rock beats scissors, scissors beat paper, paper beats rock, each with 90%; the fourth loses to
# all.
CYCLE = np.array(
    [[0.5, 0.1, 0.9, 0.9], [0.9, 0.5, 0.1, 0.9], [0.1, 0.9, 0.5, 0.9], [0.1, 0.1, 0.1, 0.5]]
)


def weights(
    solver: MetaSolver,
    *,
    scores: FloatArray = CYCLE,
    ghosts: list[Candidate] = GHOSTS,
    rates: Mapping[str, float] | None = None,
    ratings: Mapping[str, float] | None = None,
    max_players: int = 32,
) -> list[float]:
    asked = request(ghosts=ghosts, scores=scores, rates=rates, ratings=ratings)
    rule = PsroRule(meta_solver=solver, psro_players=max_players)
    found: list[float] = rule.weights(asked, rng=np.random.default_rng(0)).tolist()
    return found


@pytest.mark.parametrize(
    ("solver", "within"),
    [
        ("nash", 1e-6),
        ("prd", 0.05),  # The mean over the whole evolution comes near it.
        ("alpha_rank", 1e-3),
    ],
)
def test_rock_paper_scissors_is_met_in_equal_shares(solver: MetaSolver, within: float) -> None:
    assert weights(solver) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=within)


def test_solvers_that_look_at_age_only() -> None:
    shuffled = [GHOSTS[index] for index in (2, 0, 3, 1)]
    assert weights("uniform", ghosts=shuffled) == [0.25] * 4
    assert weights("latest", ghosts=shuffled) == [0.0, 0.0, 1.0, 0.0]
    # softmax of 0, 1, 2, 3 in the order of age
    expected = np.exp([2.0, 0.0, 3.0, 1.0])
    assert weights("uniform_biased", ghosts=shuffled) == pytest.approx(expected / expected.sum())


def test_rectified_is_nash_of_those_whom_the_trainee_beats_or_ties_with() -> None:
    rates: dict[str, float] = {GHOSTS[0].player: 0.9, GHOSTS[1].player: 0.2}
    # the third was never played, so it counts as even
    expected = [0.5, 0.0, 0.5, 0.0]
    assert weights("rectified", rates=rates) == pytest.approx(expected, abs=1e-6)
    nobody: dict[str, float] = {row.player: 0.2 for row in GHOSTS}
    assert weights("rectified", rates=nobody) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)


def test_a_large_league_plays_with_its_best_and_its_newest() -> None:
    ghosts = [ghost(10 * number) for number in range(8)]
    ratings: dict[str, float] = {ghosts[index].player: 1000.0 + index for index in (1, 2, 3)}
    found = weights("uniform", ghosts=ghosts, ratings=ratings, max_players=4)
    # the sample has the two best rated, 2 and 3, and the newest two of the others
    assert found == [0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 0.25, 0.25]
    unrated = weights("uniform", ghosts=ghosts, max_players=4)
    assert sum(unrated) == pytest.approx(1.0)
    assert np.count_nonzero(unrated) == 4


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "scores", [np.full((3, 3), 0.5), np.array([[0.5, 1, 1], [0, 0.5, 1], [0, 0, 0.5]])]
)
def test_no_solver_breaks_on_a_game_without_contest(solver: MetaSolver, scores: FloatArray) -> None:
    for size in (1, 2, 3):
        found = weights(solver, ghosts=GHOSTS[:size], scores=scores[:size, :size])
        assert np.isfinite(found).all()
        assert min(found) >= 0.0
        assert sum(found) == pytest.approx(1.0)


def test_a_game_is_solved_once() -> None:
    solved.cache_clear()
    for _ in range(3):
        weights("nash")
    assert solved.cache_info().misses == 1
    strategy = solved("nash", np.array([0, 9, -9, 0], dtype=np.int16).tobytes())
    assert not strategy.flags.writeable
