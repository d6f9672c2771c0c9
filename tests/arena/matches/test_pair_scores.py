from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.matches.pair_scores import (
    added_sums,
    adds_up,
    kept_sums,
    mean_score,
    points,
    reversed_sums,
    seen_from,
    squares,
)
from arena.types import PairScore

SCORES = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=30)


def pair(scores: list[float]) -> PairScore:
    """What a tally says of matches with these scores."""
    s = np.array(scores)
    counts = {
        "wins": int((s > 0.5).sum()),
        "draws": int((s == 0.5).sum()),
        "losses": int((s < 0.5).sum()),
    }
    plain = PairScore(first=0, second=1, **counts)
    sums = kept_sums(plain, score_sum=float(s.sum()), square_sum=float((s**2).sum()))
    return PairScore(first=0, second=1, **counts, score_sum=sums[0], square_sum=sums[1])


def test_a_win_is_one_point_and_a_draw_half() -> None:
    results = PairScore(first=0, second=1, wins=3, draws=2, losses=5)
    assert (points(results), squares(results)) == (4.0, 3.5)
    assert pair([1.0] * 3 + [0.5] * 2 + [0.0] * 5) == results


def test_results_of_a_seat_are_seen_from_it_and_those_of_others_left_out() -> None:
    pairs = (
        PairScore(first=0, second=1, wins=3, draws=2, losses=5),
        PairScore(first=1, second=2, wins=4, draws=1, losses=0, score_sum=3.75, square_sum=3.0),
        PairScore(first=0, second=2, wins=9, draws=9, losses=9),
    )
    # Seat 1 has 5 wins and 2 draws against seat 0, and 3.75 points of 5 against seat 2.
    assert seen_from(1, {0, 2}, pairs) == (9, 3, 3, 9.75)
    assert seen_from(2, {1}, pairs) == (0, 1, 4, 1.25)


@given(SCORES)
def test_a_score_is_the_mean_in_the_unit_interval(scores: list[float]) -> None:
    found = mean_score(points(pair(scores)), len(scores))
    assert found == pytest.approx(np.mean(scores), abs=1e-9)
    assert found is not None
    assert 0.0 <= found <= 1.0
    assert mean_score(0.0, 0) is None
    # The sum of rounded margins may slightly exceed the number of matches.
    assert mean_score(3.0 + 1e-7, 3) == 1.0


@given(SCORES, SCORES)
def test_sums_are_those_of_the_scores(one: list[float], other: list[float]) -> None:
    first, second = pair(one), pair(other)
    assert adds_up(first, matches=len(one))
    assert points(first) == pytest.approx(sum(one), abs=1e-9)
    assert squares(first) == pytest.approx(sum(s * s for s in one), abs=1e-9)
    total, square = added_sums(first, second)
    if total is not None:
        assert total == pytest.approx(sum(one + other), abs=1e-9)
        assert square == pytest.approx(sum(s * s for s in one + other), abs=1e-9)
    total, square = reversed_sums(first)
    if total is not None:
        assert total == pytest.approx(sum(1 - s for s in one), abs=1e-9)
        assert square == pytest.approx(sum((1 - s) ** 2 for s in one), abs=1e-9)


@pytest.mark.parametrize(
    ("score_sum", "square_sum"),
    [
        (4.1, 3.0),  # three wins, a draw and a loss are 4 points at most
        (1.9, 1.0),  # and 2 at least
        (3.0, 3.1),  # a square is no more than its score
        (3.0, 1.7),  # their mean is no less than the square of the mean: 9 / 5
        (float("nan"), 2.0),
        (3.0, float("inf")),
        (3.0, None),
        (None, 2.0),
    ],
)
def test_sums_that_no_matches_have_do_not_add_up(
    score_sum: float | None, square_sum: float | None
) -> None:
    claimed = PairScore(
        first=0, second=1, wins=3, draws=1, losses=1, score_sum=score_sum, square_sum=square_sum
    )
    assert not adds_up(claimed, matches=5)


def test_counts_must_be_the_matches() -> None:
    assert adds_up(pair([1.0, 0.5, 0.2]), matches=3)
    assert not adds_up(pair([1.0, 0.5, 0.2]), matches=4)
    assert not adds_up(PairScore(first=0, second=1, wins=-1, draws=2, losses=2), matches=3)
