"""Intervals of results and success rates by policy, and their windows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arena.types import Digest
from populations.controller.indexes.stop_goals import (
    MIN_RETURNS,
    MIN_WINDOW,
    WINDOW_PARTS,
    Met,
    Sums,
    return_bound,
    score_bound,
    window_of_score,
)
from populations.ratings.any_time import squared_width_of_windows

Z95_SQUARED = 1.959963984540054**2


def test_wilsons_lower_end_by_hand() -> None:
    # 90 of 100: (0.9 + 0.019207 - 1.96 sqrt(0.0009 + 0.00009604)) / 1.038415 = 0.8256
    ninety = Sums(matches=100.0, points=90.0)
    assert score_bound(ninety, z_squared=Z95_SQUARED) == pytest.approx(0.8256, abs=1e-4)
    assert score_bound(Sums(), z_squared=Z95_SQUARED) is None
    three = score_bound(Sums(matches=3.0, points=3.0), z_squared=Z95_SQUARED)
    assert three == pytest.approx(0.4385, abs=1e-4)


def test_a_mean_return_by_hand() -> None:
    # 50 times 9 and 50 times 11: mean 10, s^2 = 100 / 99
    sums = Sums(matches=100.0, return_sum=1000.0, return_squares=50 * 81.0 + 50 * 121.0)
    bound = return_bound(sums, z_squared=Z95_SQUARED)
    assert bound == pytest.approx(10.0 - 1.959964 * math.sqrt(100 / 99 / 100))
    few = Sums(matches=29.0, return_sum=290.0, return_squares=2900.0)
    assert return_bound(few, z_squared=Z95_SQUARED) is None


@pytest.mark.parametrize("score", [0.5, 0.95, 0.99, 0.999])
def test_a_score_can_be_reached_in_its_window(score: float) -> None:
    # The latest look of a long run of 64 policies.
    z_squared = squared_width_of_windows(1e6 / MIN_RETURNS, chances=64)
    window = window_of_score(score, z_squared=z_squared)
    bound = score_bound(Sums(matches=window, points=window), z_squared=z_squared)
    assert bound is not None
    assert bound > score


def test_a_score_that_is_looked_at_often_is_rarely_above_its_bound() -> None:
    """Plain 95% bounds of the newest 400 matches are above the truth at some time in most runs."""
    truth, per_look, looks = 0.6, 20, 300
    rng = np.random.default_rng(0)
    num_plain = num_at_any_time = 0
    for wins in rng.binomial(per_look, truth, size=(200, looks)).cumsum(axis=1):
        is_plain = is_at_any_time = False
        for look in range(looks):
            widths = squared_width_of_windows(
                (look + 1) * per_look / MIN_RETURNS, chances=len(WINDOW_PARTS)
            )
            for part in WINDOW_PARTS:
                first = look - int(part * MIN_WINDOW) // per_look
                points = float(wins[look] - (wins[first] if first >= 0 else 0))
                sums = Sums(matches=float(min(look + 1, look - first) * per_look), points=points)
                is_plain |= (score_bound(sums, z_squared=Z95_SQUARED) or 0.0) > truth
                is_at_any_time |= (score_bound(sums, z_squared=widths) or 0.0) > truth
        num_plain += is_plain
        num_at_any_time += is_at_any_time
    assert num_plain > 100
    assert num_at_any_time <= 10


def test_old_weights_go_and_still_count_as_looked_at() -> None:
    met = Met(generation=0)
    for number in range(30):
        met.add(Digest(str(number)), Sums(matches=10_000.0, points=5_000.0))
    met.add(Digest("29"), Sums(matches=1.0, points=1.0))
    assert met.matches == 300_001.0
    assert met.kept == 100_001.0 == sum(sums.matches for sums in met.newest.values())
    assert met.newest[Digest("29")].points == 5_001.0
