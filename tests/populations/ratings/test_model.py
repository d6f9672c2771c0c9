"""Questions to a fit, and what makes a game valid, by hand and by Python's own distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populations.ratings.fitting.components import Components
from populations.ratings.model import Z95, Fit, TeamGame, probability_positive

FIT = Fit(
    entrants=("anchor", "a", "b", "random"),
    ratings=np.array([0.0, 100.0, 40.0, 0.0]),
    # A deviation of 5 for a, 13 for b; the anchors are certain.
    spread=np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 13.0], [0.0, 0.0]]),
    advantages={(0, 1): 25.0},
    components=Components(child_deviation=200.0),
    shrunk=np.array([0.0, 90.0, 45.0, 0.0]),
    anchor_errors=np.zeros(4),
)


def test_covariance_and_deviations_follow_from_the_spread() -> None:
    # S @ S.T: 3 * 3 + 4 * 4, 4 * 13, 13 * 13
    expected = [[0.0, 0.0, 0.0, 0.0], [0.0, 25.0, 52.0, 0.0], [0.0, 52.0, 169.0, 0.0], [0.0] * 4]
    assert FIT.covariance.tolist() == expected
    assert FIT.deviations.tolist() == [0.0, 5.0, 13.0, 0.0]


def test_one_entrant_is_asked_for_by_its_name() -> None:
    assert [FIT.index(name) for name in FIT.entrants] == [0, 1, 2, 3]
    assert (FIT.rating("a"), FIT.deviation("a")) == (100.0, 5.0)
    assert (FIT.rating("b"), FIT.deviation("b")) == (40.0, 13.0)
    assert FIT.interval("a") == pytest.approx((100.0 - 9.7998199227, 100.0 + 9.7998199227))
    assert FIT.interval("anchor") == (0.0, 0.0)


@pytest.mark.parametrize("question", [FIT.index, FIT.rating, FIT.deviation, FIT.interval])
def test_an_entrant_that_was_not_rated_is_refused(question: object) -> None:
    assert callable(question)
    with pytest.raises(ValueError, match="not in tuple"):
        question("stranger")


def test_a_difference_counts_common_errors_once() -> None:
    # Rows (3, 4) and (0, 13): the difference (3, -9) has the length sqrt(90), and not that of
    # independent errors, sqrt(25 + 169).
    assert FIT.difference("a", "b") == pytest.approx((60.0, math.sqrt(90.0)))
    assert FIT.difference("b", "a") == pytest.approx((-60.0, math.sqrt(90.0)))
    assert FIT.difference("b", "anchor") == (40.0, 13.0)
    assert FIT.difference("a", "a") == (0.0, 0.0)
    variance = FIT.covariance[1, 1] + FIT.covariance[2, 2] - 2.0 * FIT.covariance[1, 2]
    assert FIT.difference("a", "b")[1] == pytest.approx(math.sqrt(variance))


def test_the_better_one_is_probable_by_the_difference() -> None:
    expected = NormalDist(60.0, math.sqrt(90.0)).cdf(0.0)
    assert FIT.probability_better("b", "a") == pytest.approx(expected, rel=1e-9)
    assert FIT.probability_better("a", "b") == pytest.approx(1.0 - expected)
    assert FIT.probability_better("anchor", "random") == 0.5


def test_95_percent_are_within_the_interval() -> None:
    assert NormalDist().cdf(Z95) - NormalDist().cdf(-Z95) == pytest.approx(0.95, abs=1e-15)


def test_probability_positive_by_table() -> None:
    assert probability_positive(1.2815515655, 1.0) == pytest.approx(0.9)
    assert probability_positive(-1.2815515655, 1.0) == pytest.approx(0.1)
    assert probability_positive(5.0, 0.0) == 1.0
    assert probability_positive(-5.0, 0.0) == 0.0
    assert probability_positive(0.0, 0.0) == 0.5


@given(st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
def test_probability_positive_is_a_normal_distributions(mean: float, deviation: float) -> None:
    expected = 1.0 - NormalDist(mean, deviation).cdf(0.0)
    assert probability_positive(mean, deviation) == pytest.approx(expected, abs=1e-12)


def test_probability_positive_keeps_its_digits_far_in_the_tail() -> None:
    # Abramowitz and Stegun, table 26.1: 1 - Phi(6) = 9.8659e-10; Phi's series at -20 is 2.7536e-89.
    assert probability_positive(-6.0, 1.0) == pytest.approx(9.8659e-10, rel=1e-4, abs=0.0)
    assert probability_positive(-20.0, 1.0) == pytest.approx(2.7536e-89, rel=1e-4, abs=0.0)


@pytest.mark.parametrize(
    "game",
    [
        TeamGame(sides=(("a",), ("b",)), results=(1.0, 0.0)),
        TeamGame(sides=(("a", "b"), ("c",), ("d",)), results=(-3.0, 1e9, -3.0)),
    ],
)
def test_a_sound_game_passes(game: TeamGame[str]) -> None:
    game.check()


@pytest.mark.parametrize(
    ("game", "rule"),
    [
        (TeamGame(sides=(), results=()), r"two or more sides .*, got \(\)"),
        (TeamGame(sides=(("a",),), results=(1.0,)), "two or more sides"),
        (TeamGame(sides=(("a",), ()), results=(1.0, 0.0)), "each with at least one"),
        (TeamGame(sides=(("a", "a"), ("b",)), results=(1.0, 0.0)), "different players"),
        (TeamGame(sides=(("a",), ("b", "a")), results=(1.0, 0.0)), "different players"),
        (TeamGame(sides=(("a",), ("b",)), results=(1.0, 0.0, 0.5)), r"its 2 sides, got \(1.0, 0"),
        (TeamGame(sides=(("a",), ("b",)), results=(math.inf, 0.0)), r"one finite result .*inf"),
    ],
)
def test_a_game_that_is_none_is_refused_with_the_rule(game: TeamGame[str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        game.check()
