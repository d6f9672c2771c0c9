from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.elo import (
    Game,
    elo_of_many,
    elo_ratings,
    expected_score,
)


def test_expected_scores_by_hand() -> None:
    assert expected_score(1200.0, 1200.0) == 0.5
    assert expected_score(1600.0, 1200.0) == pytest.approx(10 / 11)
    # FIDE's handbook: 200 points are an expected score of 0.76.
    assert expected_score(1400.0, 1200.0) == pytest.approx(0.76, abs=0.001)
    assert expected_score(1e9, 0.0) == 1.0
    assert expected_score(0.0, 1e9) == pytest.approx(0.0, abs=1e-200)


def test_a_win_and_a_draw_by_hand() -> None:
    start = {"a": 1600.0, "b": 1200.0}
    won = elo_ratings([Game.of_two("a", "b", score=1.0)], k_factor=32.0, start=start)
    assert won == pytest.approx({"a": 1600 + 32 / 11, "b": 1200 - 32 / 11})
    drawn = elo_ratings([Game.of_two("a", "b", score=0.5)], k_factor=32.0, start=start)
    assert drawn == pytest.approx({"a": 1600 + 32 * (0.5 - 10 / 11), "b": 1200 + 32 * (9 / 22)})


def test_newcomers_have_the_initial_rating() -> None:
    assert elo_ratings([Game.of_two("a", "b", score=1.0)], k_factor=16.0, initial=1000.0) == {
        "a": 1008.0,
        "b": 992.0,
    }


def test_the_order_of_games_matters() -> None:
    games = [Game.of_two("a", "b", score=1.0), Game.of_two("b", "a", score=1.0)]
    assert elo_ratings(games) != elo_ratings(games[::-1])


def test_three_players_are_compared_in_pairs_before_the_game() -> None:
    # All at 1200: first place scores 2 of 2, each expected 1; K/2 * 1 = 16. Two draw: 0.5 of 2.
    game = Game.of_ranking(["a", "b", "c"], results=[3.0, 1.0, 1.0])
    assert elo_ratings([game], k_factor=32.0) == {"a": 1216.0, "b": 1192.0, "c": 1192.0}


def test_frozen_players_do_not_move_and_the_others_do() -> None:
    ratings = elo_ratings([Game.of_two("a", "ghost", score=1.0)] * 5, frozen={"ghost"})
    assert ratings["ghost"] == 1200.0
    assert ratings["a"] > 1250.0


def test_ratings_settle_where_scores_are_expected() -> None:
    # Ten wins to one, over and over, with a small K: 400 points.
    scores = [1.0] * 10 + [0.0]
    games = [Game.of_two("a", "b", score=score) for score in scores * 400]
    ratings = elo_ratings(games, k_factor=1.0)
    assert ratings["a"] - ratings["b"] == pytest.approx(400.0, abs=10.0)


RESULTS = st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=5)


@settings(deadline=None)
@given(st.lists(RESULTS, max_size=10), st.floats(0.0, 100.0))
def test_every_game_is_zero_sum(outcomes: list[list[float]], k_factor: float) -> None:
    games = [
        Game.of_ranking([f"p{k}" for k in range(len(results))], results=results)
        for results in outcomes
    ]
    ratings = elo_ratings(games, k_factor=k_factor, initial=0.0)
    assert sum(ratings.values()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("game", "rule"),
    [
        (Game(players=("a",), scores=((0.5,),)), "two or more different players"),
        (Game.of_two("a", "a", score=1.0), "two or more different players"),
        (Game.of_two("a", "b", score=1.5), r"scores must be in \[0, 1\]"),
        (Game.of_two("a", "b", score=float("nan")), r"scores must be in \[0, 1\]"),
        (Game(players=("a", "b"), scores=((0.5, 1.0), (1.0, 0.5))), "those of a pair sum to 1"),
        (Game(players=("a", "b"), scores=((0.5, 1.0),)), "scores must be 2 by 2"),
    ],
)
def test_games_are_checked(game: Game[str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        elo_ratings([game])


def test_many_sequences_at_once_are_each_rated_as_one() -> None:
    rng = np.random.default_rng(0)
    homes = rng.integers(0, 5, size=40)
    aways = (homes + rng.integers(1, 5, size=40)) % 5
    scores = rng.choice([0.0, 0.5, 1.0, 0.3], size=40)
    orders = rng.integers(0, 40, size=(3, 60))
    found = elo_of_many(homes, aways, scores, orders=orders, num_players=5, k_factor=20.0)
    for row, order in zip(found, orders, strict=True):
        games = [Game.of_two(int(homes[g]), int(aways[g]), score=float(scores[g])) for g in order]
        expected = elo_ratings(games, k_factor=20.0, start=dict.fromkeys(range(5), 1200.0))
        assert row == pytest.approx([expected[player] for player in range(5)], abs=1e-9)
