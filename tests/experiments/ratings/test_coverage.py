"""What the check of intervals is made of: its counting, and that the truth is in most of them."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.ratings.coverage import NUM_PLAYERS, Share, measure


def test_a_share_counts_the_intervals_that_hold_the_truth() -> None:
    share = Share()
    assert str(share) == "-"
    share.add(np.array([0.0, 1.0, 2.0]), np.array([-1.0, 2.0, 2.0]), np.array([0.0, 3.0, 2.0]))
    assert (share.inside, share.total) == (2, 3)
    assert str(share) == "66.7% ± 27.2%"


def test_intervals_of_a_few_leagues_hold_the_truth_nearly_always() -> None:
    shares = measure(matches=20, leagues=40, resampled=2, seed=1)
    ratings, differences, resampled, resampled_differences = shares
    assert (ratings.total, resampled.total) == (40 * NUM_PLAYERS, 2 * NUM_PLAYERS)
    assert differences.total == 40 * 15
    assert resampled_differences.total == 2 * 15
    assert ratings.inside / ratings.total == pytest.approx(0.95, abs=0.05)
    assert differences.inside / differences.total == pytest.approx(0.95, abs=0.05)
