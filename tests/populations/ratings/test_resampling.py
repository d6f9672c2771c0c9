from __future__ import annotations

import numpy as np
import pytest

from populations.ratings.bootstrap import intervals


def test_intervals_are_percentiles_and_hold_the_rating() -> None:
    rows = np.stack([np.arange(1001.0), np.zeros(1001), np.full(1001, 7.0)], axis=1)
    found = intervals(np.array([500.0, 0.0, 9.0]), rows)
    assert found.lows == pytest.approx([25.0, 0.0, 7.0])
    assert found.highs == pytest.approx([975.0, 0.0, 9.0])


def test_ranks_count_who_is_ahead_in_nearly_all_resamples() -> None:
    # a is ahead of b in all of 40; c of b in 39 of 40 (97.5%); d of b in 38.
    rows = [np.array([5.0, 0.0, 1.0, 1.0])] * 38
    rows += [np.array([5.0, 0.0, 1.0, -1.0]), np.array([5.0, 0.0, -1.0, -1.0])]
    found = intervals(np.array([5.0, 0.0, 1.0, 1.0]), rows)
    assert found.ranks == ((1, 1), (3, 4), (2, 3), (2, 4))


def test_what_differs_by_a_rounding_error_is_equal() -> None:
    found = intervals(np.zeros(2), [np.array([1e-9, 0.0])] * 3)
    assert found.ranks == ((1, 2), (1, 2))
