"""What the check of matches with many comparisons is made of, and a few leagues of it."""

from __future__ import annotations

import pytest

from experiments.ratings.many_sides import LAYOUTS, coverage


@pytest.mark.parametrize("layout", ["two sides of two", "four sides"])
def test_intervals_are_wide_enough_for_matches_of_many_comparisons(layout: str) -> None:
    evaluated, of_league = coverage(LAYOUTS[layout], leagues=70)
    assert evaluated > 0.92
    assert of_league > 0.92
