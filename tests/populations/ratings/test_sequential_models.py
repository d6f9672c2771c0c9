"""Elo and Weng-Lin: one game after the other, by hand and by the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.elo import elo_of_many, expected_score
from populations.ratings.weng_lin import BETA, ELO_PER_MU, weng_lin_ratings
from tests.populations.ratings.sequential_elo import elo_ratings


def test_expected_scores_by_hand() -> None:
    assert expected_score(1200.0, 1200.0) == 0.5
    assert expected_score(1600.0, 1200.0) == pytest.approx(10 / 11)
    # By FIDE's handbook 200 points are an expected score of 0.76.
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


def plackett_luce(beliefs: Sequence[Belief], *, results: Sequence[float]) -> list[Belief]:
    """Algorithm 4 of Weng and Lin for players alone, written out."""
    everyone = range(len(beliefs))
    c = math.sqrt(sum(sigma**2 + BETA**2 for _, sigma in beliefs))
    # Lower ranks are better, but higher results are.
    strength = [
        sum(math.exp(beliefs[s][0] / c) for s in everyone if results[s] <= results[q])
        for q in everyone
    ]
    tied = [sum(results[s] == results[q] for s in everyone) for q in everyone]
    after = []
    for i, (mu, sigma) in enumerate(beliefs):
        omega = delta = 0.0
        for q in everyone:
            if results[q] >= results[i]:
                p = math.exp(mu / c) / strength[q]
                omega += ((q == i) - p) / tied[q]
                delta += p * (1.0 - p) / tied[q]
        omega *= sigma**2 / c
        delta *= sigma / c * sigma**2 / c**2
        after.append((mu + omega, sigma * math.sqrt(max(1.0 - delta, KAPPA))))
    return after


SCORES = st.sampled_from([0.0, 0.3, 0.5, 1.0])
MATCHES = st.lists(st.tuples(*[st.integers(0, 3)] * 2, SCORES).filter(lambda m: m[0] != m[1]))


@settings(deadline=None, max_examples=60)
@given(MATCHES)
def test_any_matches_are_rated_as_the_paper_says(matches: list[tuple[int, int, float]]) -> None:
    expected: dict[int, Belief] = {}
    for home, away, score in matches:
        before = [expected.get(player, (25.0, 25.0 / 3.0)) for player in (home, away)]
        results = [score, 1.0 - score]
        expected[home], expected[away] = plackett_luce(before, results=results)
    found = weng_lin_ratings(matches)
    assert found.keys() == expected.keys()
    for player, belief in found.items():
        assert belief == pytest.approx(expected[player], rel=1e-9)
        assert belief[1] > 0.0


def test_a_known_difference_of_skill_is_that_many_elo_points() -> None:
    # P(a beats b) = 1 / (1 + exp((mu_b - mu_a) / c)) with c = sqrt(2) beta without uncertainty; 400
    # points are odds of 10:1.
    difference = math.log(10.0) * math.sqrt(2.0) * BETA
    assert difference * ELO_PER_MU == pytest.approx(400.0)
