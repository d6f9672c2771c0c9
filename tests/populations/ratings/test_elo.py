from __future__ import annotations

import numpy as np
import pytest

from populations.ratings.elo import elo_of_many, expected_score
from tests.populations.ratings.sequential_elo import elo_ratings


def test_expected_scores_by_hand() -> None:
    assert expected_score(1200.0, 1200.0) == 0.5
    assert expected_score(1600.0, 1200.0) == pytest.approx(10 / 11)
    # FIDE's handbook: 200 points are an expected score of 0.76.
    assert expected_score(1400.0, 1200.0) == pytest.approx(0.76, abs=0.001)
    assert expected_score(1e9, 0.0) == 1.0
    assert expected_score(0.0, 1e9) == pytest.approx(0.0, abs=1e-200)


def rated(games: list[tuple[int, int, float]], *, k_factor: float, initial: float) -> list[float]:
    """Ratings of two players after the games, by the function under test."""
    homes, aways = np.array([[home, away] for home, away, _ in games]).T
    found = elo_of_many(
        homes,
        aways,
        np.array([score for *_, score in games]),
        orders=np.arange(len(games))[np.newaxis],
        num_players=2,
        k_factor=k_factor,
        initial=initial,
    )
    return [float(rating) for rating in found[0]]


def test_a_win_and_a_draw_by_hand() -> None:
    assert rated([(0, 1, 1.0)], k_factor=16.0, initial=1000.0) == [1008.0, 992.0]
    # A lead of 400 points after the win is an expected score of 10/11.
    drawn = rated([(0, 1, 1.0), (0, 1, 0.5)], k_factor=400.0, initial=1200.0)
    assert drawn == pytest.approx([1400 + 400 * (0.5 - 10 / 11), 1000 + 400 * (9 / 22)])


def test_the_order_of_games_matters() -> None:
    forth = rated([(0, 1, 1.0), (1, 0, 1.0)], k_factor=32.0, initial=0.0)
    assert forth != rated([(1, 0, 1.0), (0, 1, 1.0)], k_factor=32.0, initial=0.0)


def test_ratings_settle_where_scores_are_expected() -> None:
    # Ten wins to one, over and over, with a small K: 400 points.
    scores = [1.0] * 10 + [0.0]
    first, second = rated([(0, 1, score) for score in scores * 400], k_factor=1.0, initial=1200.0)
    assert first - second == pytest.approx(400.0, abs=10.0)
    assert first + second == pytest.approx(2400.0)


def test_many_sequences_at_once_are_each_rated_as_one() -> None:
    rng = np.random.default_rng(0)
    homes = rng.integers(0, 5, size=40)
    aways = (homes + rng.integers(1, 5, size=40)) % 5
    scores = rng.choice([0.0, 0.5, 1.0, 0.3], size=40)
    orders = rng.integers(0, 40, size=(3, 60))
    found = elo_of_many(homes, aways, scores, orders=orders, num_players=5, k_factor=20.0)
    for row, order in zip(found, orders, strict=True):
        games = [(str(homes[g]), str(aways[g]), float(scores[g])) for g in order]
        expected = elo_ratings(games, k_factor=20.0)
        ratings = [expected.get(str(player), 1200.0) for player in range(5)]
        assert row == pytest.approx(ratings, abs=1e-9)
