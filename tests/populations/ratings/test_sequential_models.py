"""Elo and Weng-Lin: one game after the other, by hand and by the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.elo import elo_of_many, expected_score
from populations.ratings.model import TeamGame
from populations.ratings.weng_lin import BETA, ELO_PER_MU, weng_lin_ratings
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


KAPPA = 1e-4
Belief = tuple[float, float]


def plackett_luce(
    sides: Sequence[Sequence[Belief]], *, results: Sequence[float], tau: float = 0.0
) -> list[list[Belief]]:
    """Algorithm 4 of Weng and Lin, written out."""
    widened = [[(mu, math.hypot(sigma, tau)) for mu, sigma in side] for side in sides]
    mus = [sum(mu for mu, _ in side) for side in widened]
    variances = [sum(sigma**2 for _, sigma in side) for side in widened]
    everyone = range(len(sides))
    c = math.sqrt(sum(variance + BETA**2 for variance in variances))
    # Lower ranks are better; a higher result is.
    strength = [
        sum(math.exp(mus[s] / c) for s in everyone if results[s] <= results[q]) for q in everyone
    ]
    tied = [sum(results[s] == results[q] for s in everyone) for q in everyone]
    after = []
    for i in everyone:
        omega = delta = 0.0
        for q in everyone:
            if results[q] >= results[i]:
                p = math.exp(mus[i] / c) / strength[q]
                omega += ((q == i) - p) / tied[q]
                delta += p * (1.0 - p) / tied[q]
        omega *= variances[i] / c
        delta *= math.sqrt(variances[i]) / c * variances[i] / c**2
        after.append(
            [
                (
                    mu + sigma**2 / variances[i] * omega,
                    sigma * math.sqrt(max(1.0 - sigma**2 / variances[i] * delta, KAPPA)),
                )
                for mu, sigma in widened[i]
            ]
        )
    return after


def rated_by_weng_lin(
    sides: Sequence[Sequence[Belief]], *, results: Sequence[float], tau: float = 0.0
) -> list[list[Belief]]:
    names = [[f"{i}.{j}" for j in range(len(side))] for i, side in enumerate(sides)]
    start = {
        name: belief
        for side, beliefs in zip(names, sides, strict=True)
        for name, belief in zip(side, beliefs, strict=True)
    }
    game = TeamGame(sides=tuple(map(tuple, names)), results=tuple(results))
    after = weng_lin_ratings([game], start=start, tau=tau)
    return [[after[name] for name in side] for side in names]


GOLDEN = [[(25.0, 25.0 / 3.0), (32.444, 5.123)], [(43.381, 2.421), (25.188, 6.211)]]


def test_the_published_example_of_two_teams() -> None:
    after = rated_by_weng_lin(GOLDEN, results=[1.0, 0.0])
    expected = [
        (28.669648436582808, 8.071520788025197),
        (33.83086971107981, 5.062772998705765),
        (43.071274808241974, 2.4166900452721256),
        (23.149503312339064, 6.1378606973362135),
    ]
    for belief, (mu, sigma) in zip([b for side in after for b in side], expected, strict=True):
        assert belief[0] == pytest.approx(mu, abs=1e-12)
        assert belief[1] == pytest.approx(sigma, abs=1e-12)


BELIEF = st.tuples(st.floats(0.0, 50.0), st.floats(0.5, 10.0))
SIDES = st.lists(st.lists(BELIEF, min_size=1, max_size=3), min_size=2, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_game_is_rated_as_the_paper_says(data: st.DataObject) -> None:
    sides = data.draw(SIDES)
    results = data.draw(st.lists(st.integers(0, 3), min_size=len(sides), max_size=len(sides)))
    tau = data.draw(st.sampled_from([0.0, 25.0 / 300.0]))
    found = rated_by_weng_lin(sides, results=results, tau=tau)
    expected = plackett_luce(sides, results=results, tau=tau)
    for side, beliefs in zip(found, expected, strict=True):
        assert np.array(side) == pytest.approx(np.array(beliefs), rel=1e-9)
        assert all(sigma > 0.0 for _, sigma in side)


def test_games_follow_one_another_and_frozen_players_stay() -> None:
    games = [TeamGame(sides=(("a",), ("ghost",)), results=(1.0, 0.0))] * 10
    ratings = weng_lin_ratings(games, frozen={"ghost"})
    assert ratings["ghost"] == (25.0, 25.0 / 3.0)
    belief = (25.0, 25.0 / 3.0)
    for _ in games:
        belief = plackett_luce([[belief], [(25.0, 25.0 / 3.0)]], results=[1.0, 0.0])[0][0]
    assert ratings["a"] == pytest.approx(belief, rel=1e-12)


def test_a_known_difference_of_skill_is_that_many_elo_points() -> None:
    # P(a beats b) = 1 / (1 + exp((mu_b - mu_a) / c)), c = sqrt(2) beta where nothing is uncertain;
    # 400 points are odds of 10:1.
    difference = math.log(10.0) * math.sqrt(2.0) * BETA
    assert difference * ELO_PER_MU == pytest.approx(400.0)


@pytest.mark.parametrize(
    ("game", "rule"),
    [
        (TeamGame(sides=(("a",),), results=(1.0,)), "two or more sides"),
        (TeamGame(sides=(("a",), ()), results=(1.0, 0.0)), "at least one"),
        (TeamGame(sides=(("a",), ("b", "a")), results=(1.0, 0.0)), "different players"),
        (TeamGame(sides=(("a",), ("b",)), results=(1.0,)), "one finite result for each of its 2"),
        (TeamGame(sides=(("a",), ("b",)), results=(1.0, math.nan)), "one finite result"),
    ],
)
def test_games_are_checked(game: TeamGame[str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        weng_lin_ratings([game])


def test_a_drift_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="tau must be finite and at least 0"):
        weng_lin_ratings([], tau=-1.0)
