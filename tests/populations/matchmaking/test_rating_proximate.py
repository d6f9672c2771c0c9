"""Matches of open outcome, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from populations.matchmaking.rating_proximate import RatingProximateRule, expected_scores
from tests.populations.matchmaking.toy_league import ghost, probabilities, request


def test_rating_proximate_by_hand() -> None:
    # 400 points are 10:1: P = 10/11 and 1/11, (P - 1/2)^2 = (9/22)^2; s = 1/6.
    asked = request(
        ghosts=4,
        ratings={ghost(0).player: 600.0, ghost(1).player: 1000.0, ghost(2).player: 1400.0},
        trainee_rating=1000.0,
    )
    far = math.exp(-((9 / 22) ** 2) / (2 / 36))
    expected = np.array([far, 1.0, far, 1.0])  # who is unrated counts as even
    found = probabilities(RatingProximateRule(rating_width=1 / 6), asked)
    assert found == pytest.approx((expected / expected.sum()).tolist())


def test_an_unrated_trainee_meets_all_alike() -> None:
    asked = request(ghosts=2, ratings={ghost(0).player: 3000.0})
    assert probabilities(RatingProximateRule(rating_width=1 / 6), asked) == [0.5, 0.5]


def test_expected_scores_stand_any_difference() -> None:
    found = expected_scores(0.0, np.array([-1e9, 0.0, 400.0, 1e9, np.nan]))
    assert found == pytest.approx([1.0, 0.5, 1 / 11, 0.0, 0.5], abs=1e-12)


def test_errors_name_the_rule_and_the_value() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        RatingProximateRule(rating_width=0.0)
