from __future__ import annotations

import pytest

from arena.learners.work.training import ReturnSums
from arena.types import Entrant, Tally

ME, OTHER = Entrant("bot:me"), Entrant("bot:other")


def tally(
    entrants: tuple[Entrant, ...], sums: tuple[float, ...], squares: tuple[float, ...]
) -> Tally:
    return Tally(
        entrants=entrants,
        matches=4,
        pairs=(),
        return_sum=sums,
        return_sum_of_squares=squares,
        length_sum=4,
    )


def test_by_hand() -> None:
    returns = ReturnSums()
    # Returns 1, 1, 3, 3: mean 2, deviation 1.
    returns.add(tally((ME, OTHER), (8.0, -8.0), (20.0, 20.0)), entrant=ME, sides=("a", "b"))
    assert returns.metrics() == {
        "episode/return_mean": pytest.approx(2.0),
        "episode/return_deviation": pytest.approx(1.0),
    }


def test_mirror_play_whose_returns_cancel_is_left_out() -> None:
    returns = ReturnSums()
    assert returns.metrics() == {}
    mirror = tally((ME, ME), (8.0, -8.0), (20.0, 20.0))
    returns.add(mirror, entrant=ME, sides=("a", "b"))
    assert returns.metrics() == {}
    # On one side they do not cancel: both seats count.
    returns.add(mirror, entrant=ME, sides=("a", "a"))
    assert returns.metrics()["episode/return_mean"] == 0.0
    assert returns.count == 8
