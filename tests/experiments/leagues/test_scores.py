"""Wilson's interval against its definition and published numbers."""

from __future__ import annotations

import math

import pytest

from experiments.leagues.scores import Z95, Counts


def test_the_interval_has_published_ends() -> None:
    # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I.
    low, high = Counts(wins=81, draws=0, losses=182).interval()
    assert (low, high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    low, high = Counts(wins=0, draws=0, losses=20).interval()
    assert (low, high) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize("counts", [(10, 0, 30), (7, 6, 27), (40, 0, 0)])
def test_the_ends_are_the_shares_that_the_score_is_just_compatible_with(
    counts: tuple[int, int, int],
) -> None:
    wins, draws, losses = counts
    record = Counts(wins=wins, draws=draws, losses=losses)
    for end in record.interval():
        spread = math.sqrt(max(end * (1 - end), 0.0) / record.matches)
        assert abs(record.score - end) == pytest.approx(Z95 * spread, abs=1e-9)


def test_a_draw_is_half_a_win() -> None:
    assert Counts(wins=3, draws=2, losses=5).score == pytest.approx(0.4)
