"""The time of a match, by hand."""

from __future__ import annotations

import pytest

from populations.controller.state.clocks import MIN_MATCH_S, MatchTimes


def test_the_last_evaluations_count_most_and_by_their_matches() -> None:
    times = MatchTimes()
    assert times.match_s is None
    times.add(matches=100, duration_s=1.0)
    assert times.match_s == 0.01
    times.add(matches=50, duration_s=2.0)
    # (1 / 2 + 2) s for 100 / 2 + 50 matches
    assert times.match_s == pytest.approx(0.025)
    for _ in range(40):
        times.add(matches=10, duration_s=3.0)
    assert times.match_s == pytest.approx(0.3)


def test_a_stopwatch_that_shows_nothing_says_nothing() -> None:
    assert MatchTimes(matches=128.0, seconds=0.0).match_s is None
    assert MatchTimes(matches=0.0, seconds=1.0).match_s is None
    assert MatchTimes(matches=1.0, seconds=1e-300).match_s == MIN_MATCH_S
