from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from populations.core import Result
from populations.ratings.ranks import FloatArray, cyclicity, pair_log_odds, rank_intervals

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_sure_differences_give_sure_ranks() -> None:
    covariance = np.diag([1.0, 1.0, 1.0])
    assert rank_intervals(np.array([0.0, 100.0, 50.0]), covariance=covariance) == [
        (3, 3),
        (1, 1),
        (2, 2),
    ]


def test_unsure_differences_share_ranks() -> None:
    # The standard deviation of each difference is sqrt(2) * 10: 28 points are 95%.
    ratings = np.array([100.0, 80.0, 0.0])
    assert rank_intervals(ratings, covariance=np.diag([100.0] * 3)) == [(1, 2), (1, 2), (3, 3)]


def test_shared_errors_do_not_blur_ranks() -> None:
    # Both are unsure against the anchor by 100, and by next to nothing against each other.
    covariance = np.array([[10_000.0, 9_999.0], [9_999.0, 10_000.0]])
    assert rank_intervals(np.array([10.0, 0.0]), covariance=covariance) == [(1, 1), (2, 2)]


def test_rock_paper_scissors_is_all_cycle() -> None:
    assert cyclicity(ROCK_PAPER_SCISSORS) == pytest.approx(1.0)


@settings(deadline=None)
@given(arrays(np.float64, st.integers(2, 8), elements=st.floats(-5.0, 5.0)))
def test_differences_of_ratings_are_no_cycle(ratings: FloatArray) -> None:
    assert cyclicity(ratings[:, None] - ratings[None, :]) == pytest.approx(0.0, abs=1e-9)


def test_a_mixture_has_the_share_of_its_cycle() -> None:
    # Squared norms: the cycle 6, the ratings (1, 0, -1) have 2 * (1 + 4 + 1) = 12; orthogonal.
    ratings = np.array([1.0, 0.0, -1.0])
    mixture = ROCK_PAPER_SCISSORS + ratings[:, None] - ratings[None, :]
    assert cyclicity(mixture) == pytest.approx(6 / 18)


def test_pairs_that_never_met_say_nothing() -> None:
    # Without its third pair, rock, paper, scissors is a chain, and chains have ratings.
    weights = np.ones((3, 3))
    weights[0, 2] = weights[2, 0] = 0.0
    assert cyclicity(ROCK_PAPER_SCISSORS, weights=weights) == pytest.approx(0.0, abs=1e-12)
    assert cyclicity(ROCK_PAPER_SCISSORS, weights=np.zeros((3, 3))) == 0.0


def test_log_odds_of_a_table_by_hand() -> None:
    results = [
        Result(first="a", second="b", seats=(0, 1), wins=3, draws=2, losses=1),
        Result(first="b", second="a", seats=(0, 1), wins=0, draws=0, losses=2),
    ]
    log_odds, matches = pair_log_odds(results, entrants=["a", "b", "c"])
    # a: 3 + 1 + 2 = 6 points of 8, b: 2; half added to each.
    assert log_odds[0, 1] == pytest.approx(np.log(6.5 / 2.5))
    assert log_odds == pytest.approx(-log_odds.T)
    assert matches.tolist() == [[0, 8, 0], [8, 0, 0], [0, 0, 0]]


def test_advantages_must_be_antisymmetric() -> None:
    with pytest.raises(ValueError, match="antisymmetric"):
        cyclicity(np.ones((2, 2)))
