from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from populations.matchmaking.drawing import RuleMatchmaker
from populations.matchmaking.pfsp import PfspRule, Weighting, draw_win_rates, pfsp_probabilities
from tests.populations.matchmaking.toy_league import ghost, request, shares

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


def test_it_meets_those_it_cannot_beat() -> None:
    rates: dict[str, float] = {ghost(0).player: 1.0, ghost(1).player: 0.5, ghost(2).player: 0.0}
    matchmaker = RuleMatchmaker(rule=PfspRule(weighting="squared"), latest_ratio=0.0)
    drawn = shares(matchmaker, request(ghosts=3, rates=rates), num_draws=1500)
    # squared weights 0, 1/4, 1
    assert drawn.get(ghost(0).player, 0.0) == 0.0
    assert drawn[ghost(1).player] == pytest.approx(0.2, abs=0.015)
    assert drawn[ghost(2).player] == pytest.approx(0.8, abs=0.015)


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
    # Of 9 unmet ghosts 8 are 800 Elo behind (1 of 101 lost), one is even.
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
    # Kolmogorov-Smirnov with a fixed seed.
    assert stats.kstest(drawn[0], stats.beta(4, 4).cdf).pvalue > 0.01
    assert stats.kstest(drawn[1], stats.beta(10, 6).cdf).pvalue > 0.01


def test_thompson_knows_sure_predictions() -> None:
    ratings: dict[str, float] = {ghost(0).player: -1e5, ghost(1).player: 1e5}
    asked = request(ghosts=2, ratings=ratings, trainee_rating=0.0)
    drawn = draw_win_rates(*asked.posterior(asked.ghosts), rng=np.random.default_rng(0))
    assert drawn.tolist() == [1.0, 0.0]


def test_thompson_explores_more_than_the_mean() -> None:
    # Surely beaten 9 times of 10, but one of them only in ten matches.
    asked = request(ghosts=2, rates={ghost(0).player: 0.9}, matches=10.0)
    rule = PfspRule(weighting="squared", posterior="thompson")
    rng = np.random.default_rng(0)
    weights = np.array([rule.weights(asked, rng=rng) for _ in range(4000)])
    # E (1 - x)^2 = variance + (1 - mean)^2 of Beta(9 + 4, 1 + 4) and Beta(4, 4).
    expected = [dist.var() + (1 - dist.mean()) ** 2 for dist in (BETA, stats.beta(4, 4))]
    assert weights.mean(axis=0) == pytest.approx(expected, rel=0.06)


BETA = stats.beta(13, 5)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_who_beats_everyone_meets_all_alike(weighting: Weighting) -> None:
    assert pfsp_probabilities(np.ones(4), weighting=weighting) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_who_loses_to_everyone_meets_all_alike(weighting: Weighting) -> None:
    assert pfsp_probabilities(np.zeros(4), weighting=weighting) == pytest.approx([0.25] * 4)


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
