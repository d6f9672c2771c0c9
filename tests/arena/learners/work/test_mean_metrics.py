from __future__ import annotations

import math

import pytest

from arena.learners.work.training import return_metrics
from arena.learning.update_metrics import MeanMetrics
from arena.types import Entrant, Tally


def test_updates_become_means_bounds_and_last_values() -> None:
    metrics = MeanMetrics()
    metrics.add(
        {
            "loss/total": 1.0,
            "optimizer/updates": 16.0,
            "advantage/min": -2.0,
            "advantage/max": 0.5,
            "policy/kl_max": 2.0,
            "policy/ratio_min": 0.75,
            "policy/ratio_max": 1.5,
        }
    )
    metrics.add(
        {
            "loss/total": 4.0,
            "optimizer/updates": 32.0,
            "advantage/min": -1.0,
            "advantage/max": 3.0,
            "policy/kl_max": 0.5,
            "policy/ratio_min": 0.25,
            "policy/ratio_max": 1.25,
        }
    )
    assert metrics.result() == {
        "loss/total": 2.5,
        "optimizer/updates": 32.0,
        "advantage/min": -2.0,
        "advantage/max": 3.0,
        "policy/kl_max": 2.0,
        "policy/ratio_min": 0.25,
        "policy/ratio_max": 1.5,
    }


def test_a_number_that_is_not_finite_costs_no_other_one() -> None:
    metrics = MeanMetrics()
    metrics.add({"loss/total": 1.0, "advantage/max": math.inf, "value/only": math.nan})
    metrics.add({"loss/total": math.nan, "advantage/max": 2.0})
    assert metrics.result() == {"loss/total": 1.0, "advantage/max": 2.0}


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
    # The returns are 1, 1, 3, 3: mean 2, standard deviation 1.
    match = tally((ME, OTHER), (8.0, -8.0), (20.0, 20.0))
    assert return_metrics([match], entrant=ME, sides=("a", "b")) == {
        "episode/return_mean": pytest.approx(2.0),
        "episode/return_deviation": pytest.approx(1.0),
    }


def test_mirror_play_whose_returns_cancel_is_left_out() -> None:
    mirror = tally((ME, ME), (8.0, -8.0), (20.0, 20.0))
    assert return_metrics([mirror], entrant=ME, sides=("a", "b")) == {}
    # On one side the returns do not cancel: both seats count, with variance (20 + 20) / 8.
    found = return_metrics([mirror], entrant=ME, sides=("a", "a"))
    assert found == {
        "episode/return_mean": 0.0,
        "episode/return_deviation": pytest.approx(math.sqrt(5.0)),
    }
    # The mirror match that is left out changes nothing.
    match = tally((ME, OTHER), (8.0, -8.0), (20.0, 20.0))
    both = return_metrics([match, mirror], entrant=ME, sides=("a", "b"))
    assert both == return_metrics([match], entrant=ME, sides=("a", "b"))
