from __future__ import annotations

import math

from arena.learning.update_metrics import MeanMetrics


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
