from __future__ import annotations

from populations.core import Result
from populations.ratings.results import merge_results


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
    assert merge_results(seen) == expected
    assert merge_results(seen[::-1]) == expected
