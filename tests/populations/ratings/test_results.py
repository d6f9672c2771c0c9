from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.model import Result
from populations.ratings.results import (
    Counts,
    ResultColumns,
    merge_columns,
    result_columns,
)

SEATS = st.sampled_from([(0, 0), (0, 1), (1, 0), (0, 2), (2, 2)])
COUNTS = st.integers(0, 100)


@st.composite
def result(draw: st.DrawFn) -> Result[str]:
    """Matches that are won, drawn and lost, or have scores in quarters."""
    first, second = draw(st.permutations("abcd"))[:2]
    seats = draw(SEATS)
    if draw(st.booleans()):
        wins, draws, losses = draw(COUNTS), draw(COUNTS), draw(COUNTS)
        return Result(
            first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses
        )
    scores = np.array(draw(st.lists(st.integers(0, 4), max_size=20))) / 4
    return Result(
        first=first,
        second=second,
        seats=seats,
        wins=int((scores > 0.5).sum()),
        draws=int((scores == 0.5).sum()),
        losses=int((scores < 0.5).sum()),
        score_sum=float(scores.sum()),
        square_sum=float((scores**2).sum()),
    )


RESULTS = st.lists(result(), max_size=30)


def same(results: Iterable[Result[str]]) -> list[tuple[object, ...]]:
    """What results say, however they say it."""
    return [(r.first, r.second, r.seats, *Counts.from_results(r)) for r in results]


def test_both_views_of_a_result_merge_and_swapped_seats_do_not() -> None:
    seen = [
        Result(first="a", second="b", seats=(0, 1), wins=1, draws=2, losses=3),
        Result(first="b", second="a", seats=(1, 0), wins=30, draws=20, losses=10),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    ]
    expected = (
        Result(first="a", second="b", seats=(0, 1), wins=11, draws=22, losses=33),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    )
    assert tuple(merge_columns(result_columns(seen), entrants=("a", "b"))) == expected
    assert tuple(merge_columns(result_columns(seen[::-1]), entrants=("a", "b"))) == expected


@settings(deadline=None)
@given(RESULTS)
def test_merging_columns_adds_up_both_views(results: list[Result[str]]) -> None:
    merged = merge_columns(result_columns(results), entrants=("a", "b", "c", "d"))
    sums: dict[tuple[tuple[int, str], tuple[int, str]], Counts] = {}
    for one in results:
        counts = Counts.from_results(one)
        sides = (one.seats[0], one.first), (one.seats[1], one.second)
        # The lower seat comes first; of equal seats, the first name.
        if sides[0] > sides[1]:
            sides, counts = (sides[1], sides[0]), counts.turned()
        before = sums.get(sides, Counts(0, 0, 0, 0, 0))
        sums[sides] = Counts(*(a + b for a, b in zip(before, counts, strict=True)))
    found = {
        ((one.seats[0], one.first), (one.seats[1], one.second)): Counts.from_results(one)
        for one in merged
    }
    assert found == sums
    assert len(merged) == len(tuple(merged)) == len(sums)


@settings(deadline=None)
@given(RESULTS)
@pytest.mark.slow
def test_columns_hold_what_they_were_made_of(results: list[Result[str]]) -> None:
    columns = result_columns(results)
    assert same(columns) == same(results)
    assert result_columns(columns) is columns


def test_merged_columns_have_the_order_that_is_asked_for() -> None:
    results = [Result(first="b", second="a", seats=(0, 0), wins=1, draws=0, losses=2)]
    merged = merge_columns(result_columns(results), entrants=("c", "a", "b"))
    assert merged.entrants == ("c", "a", "b")
    assert (merged.first.tolist(), merged.second.tolist()) == ([1], [2])
    assert merged.counts.tolist() == [[2, 0, 1]]


def test_some_results_can_be_kept() -> None:
    columns = ResultColumns(
        entrants=("a", "b", "c"),
        first=np.array([0, 1]),
        second=np.array([1, 2]),
        seats=np.array([[0, 1], [1, 0]]),
        counts=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        sums=np.array([[2.0, 1.5], [6.5, 5.25]]),
    )
    kept = columns.where(np.array([False, True]))
    assert list(kept) == [Result(first="b", second="c", seats=(1, 0), wins=4, draws=5, losses=6)]


def test_a_model_of_wins_and_losses_learns_parts_of_them_where_there_are_margins() -> None:
    results = [
        Result(first="a", second="b", seats=(0, 1), wins=3, draws=2, losses=5),
        # Scores of 0.75 (four times), 0.5 and 0.0: the sum is 3.5.
        Result(
            first="a",
            second="c",
            seats=(0, 1),
            wins=4,
            draws=1,
            losses=1,
            score_sum=3.5,
            square_sum=2.5,
        ),
    ]
    columns = result_columns(results)
    assert columns.outcomes.tolist() == [[3, 2, 5], [3.5, 0, 2.5]]
    assert columns.matches.tolist() == [10, 6]
    # Seen from c: 0.25 four times, 0.5 and 1.0.
    turned = merge_columns(columns, entrants=("c", "b", "a")).sums.tolist()
    assert turned == [[3.5, 2.5], [4.0, 3.5]] or turned == [[2.5, 1.5], [6.0, 5.5]]
