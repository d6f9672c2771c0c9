"""Intervals of results and success rates by policy, and their windows."""

from __future__ import annotations

import math

import pytest

from populations.controller.indexes.stop_goals import (
    Sums,
    return_bound,
    score_bound,
    window_of_score,
)


def test_wilsons_lower_end_by_hand() -> None:
    # 90 of 100: (0.9 + 0.019207 - 1.96 sqrt(0.0009 + 0.00009604)) / 1.038415 = 0.8256
    assert score_bound(Sums(matches=100.0, points=90.0)) == pytest.approx(0.8256, abs=1e-4)
    assert score_bound(Sums()) is None
    assert score_bound(Sums(matches=3.0, points=3.0)) == pytest.approx(0.4385, abs=1e-4)


def test_a_mean_return_by_hand() -> None:
    # 50 times 9 and 50 times 11: mean 10, s^2 = 100 / 99
    sums = Sums(matches=100.0, return_sum=1000.0, return_squares=50 * 81.0 + 50 * 121.0)
    assert return_bound(sums) == pytest.approx(10.0 - 1.959964 * math.sqrt(100 / 99 / 100))
    few = Sums(matches=29.0, return_sum=290.0, return_squares=2900.0)
    assert return_bound(few) is None


@pytest.mark.parametrize("score", [0.5, 0.95, 0.99, 0.999])
def test_a_score_can_be_reached_in_its_window(score: float) -> None:
    window = window_of_score(score)
    bound = score_bound(Sums(matches=window, points=window))
    assert bound is not None
    assert bound > score
