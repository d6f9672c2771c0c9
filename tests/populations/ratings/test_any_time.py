"""Intervals that hold at all times at once."""

from __future__ import annotations

import numpy as np
import pytest

from populations.ratings.any_time import any_time_width, squared_width, squared_width_of_windows
from populations.ratings.model import Z95


def test_squared_width_by_hand() -> None:
    # u / v = 25: (1 + 1 / 25) (2 log 20 + log 26), and with 8 chances 2 log 160.
    assert squared_width(25.0) == pytest.approx(1.04 * (5.991465 + 3.258097))
    assert squared_width(25.0, chances=8) == pytest.approx(1.04 * (10.150347 + 3.258097))
    # 2 log 160 + 2 log 26
    assert squared_width_of_windows(25.0, chances=8) == pytest.approx(10.150347 + 6.516193)


def test_a_rating_that_is_looked_at_often_is_rarely_above_its_bound() -> None:
    # A player of strength 0 whose estimate is looked at after each of 400 matches: a bound of 95%
    # is above the truth at some time in a third of all cases.
    rng = np.random.default_rng(0)
    matches = np.arange(16, 416)
    deviations = 347.4 / np.sqrt(matches)
    means = 347.4 * np.cumsum(rng.normal(size=(2000, 415)), axis=1)[:, 15:] / matches
    plain = (means - Z95 * deviations > 0.0).any(axis=1).mean()
    widths = np.array([any_time_width(float(d), scale=200.0) for d in deviations])
    at_any_time = (means - widths > 0.0).any(axis=1).mean()
    assert plain > 0.1
    assert at_any_time <= 0.025
