from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populations.league.scores import PRIOR_MATCHES, filled_scores, filled_scores_among


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
