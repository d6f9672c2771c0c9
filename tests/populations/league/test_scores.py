from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.core import PRIOR_MATCHES
from populations.league.scores import (
    SIDE_DEVIATION,
    filled_scores,
    filled_scores_among,
    rating_by_results,
)


def test_results_outweigh_the_prediction_as_they_add_up() -> None:
    # Even ratings promise 1/2: (3 + 4 + 8 / 2) / (8 + 8) = 11 / 16.
    scores = filled_scores_among(np.zeros(3), [(0, 1, 3, 4), (1, 0, 0, 4)])
    assert PRIOR_MATCHES == 8.0
    assert scores[0, 1] == pytest.approx(11 / 16)
    assert scores[1, 0] == pytest.approx(5 / 16)
    assert scores[0, 2] == scores[2, 1] == scores[1, 1] == 0.5


def test_who_never_met_scores_what_ratings_promise() -> None:
    scores = filled_scores_among(np.array([400.0, 0.0, np.nan]), [])
    # 400 points are odds of 10 to 1.
    assert scores[0, 1] == pytest.approx(10 / 11)
    assert scores[0, 2] == scores[2, 0] == 0.5


def test_rows_and_columns_may_be_of_different_populations() -> None:
    predicted = np.array([[0.25, 0.5, 0.75]])
    scores = filled_scores(predicted, [(0, 2, 8.0, 8.0)])
    assert scores.tolist() == [[0.25, 0.5, (8 + 6) / 16]]


@given(
    ratings=st.lists(st.floats(-2000, 2000) | st.just(float("nan")), min_size=2, max_size=5),
    outcomes=st.lists(st.tuples(*[st.integers(0, 1)] * 2, st.floats(0, 1), st.integers(0, 50))),
)
def test_scores_of_both_players_add_up_to_one(
    ratings: list[float], outcomes: list[tuple[int, int, float, int]]
) -> None:
    met = [(i, j, share * number, number) for i, j, share, number in outcomes if i != j]
    scores = filled_scores_among(np.array(ratings), met)
    assert np.isfinite(scores).all()
    assert scores + scores.T == pytest.approx(np.ones_like(scores))
    assert ((scores >= 0.0) & (scores <= 1.0)).all()


def test_a_rating_goes_to_where_results_say_that_it_is() -> None:
    # Against many at 0 it wins 10 of 11: 400 Elo, once the prior weighs nothing beside results.
    opponents, matches = np.zeros(5), np.full(5, 1e9)
    found = rating_by_results(1e3, opponents, wins=matches * 10 / 11, losses=matches / 11)
    assert found == pytest.approx(400.0, abs=0.01)


def test_without_results_a_rating_stays() -> None:
    nobody = np.zeros(0)
    assert rating_by_results(321.0, nobody, wins=nobody, losses=nobody) == 321.0
    assert np.isnan(rating_by_results(np.nan, np.zeros(1), wins=np.ones(1), losses=np.ones(1)))


@settings(deadline=None, max_examples=40)
@given(
    rating=st.floats(-4e3, 4e3),
    data=st.lists(
        st.tuples(st.floats(-4e3, 4e3), st.floats(0.0, 1e4), st.floats(0.0, 1e4)), max_size=6
    ),
)
def test_a_moved_rating_is_the_highest_point_of_its_posterior(
    rating: float, data: list[tuple[float, float, float]]
) -> None:
    opponents, wins, losses = np.array(data).reshape(len(data), 3).T

    def slope(elo: float) -> float:
        """Of the log posterior, per Elo: falls everywhere."""
        expected = 1.0 / (1.0 + np.exp(np.clip((opponents - elo) * np.log(10) / 400.0, -700, 700)))
        return float(
            np.log(10) / 400.0 * (wins - (wins + losses) * expected).sum()
            - (elo - rating) / SIDE_DEVIATION**2
        )

    found = rating_by_results(rating, opponents, wins=wins, losses=losses)
    assert slope(found - 1.0) > 0.0 > slope(found + 1.0)
