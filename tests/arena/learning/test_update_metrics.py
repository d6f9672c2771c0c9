from __future__ import annotations

import math

import pytest
import torch

from arena.learning.update_metrics import UpdateMetrics

NAMES = ("loss/total", "policy/kl")


def test_losses_are_means_over_all_epochs_and_diagnostics_over_the_last() -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.add(None)
    metrics.add([2.0, 30.0])
    assert metrics.results() == {
        "loss/total": 1.5,
        "policy/kl": 20.0,
        "policy/kl_max": 20.0,
    }
    metrics.begin_epoch()
    metrics.add([6.0, 5.0])
    assert metrics.results() == {"loss/total": 3.0, "policy/kl": 5.0, "policy/kl_max": 5.0}
    assert metrics.skipped == 1


def test_what_was_not_measured_is_not_there() -> None:
    metrics = UpdateMetrics(NAMES)
    assert metrics.results() == {}
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.begin_epoch()
    metrics.add(None)
    assert metrics.results() == {"loss/total": 1.0}


def test_ratios_are_the_extremes_of_all_epochs_and_skipped_steps_have_none() -> None:
    metrics = UpdateMetrics(("policy/kl", "policy/ratio_min", "policy/ratio_max"))
    metrics.begin_epoch()
    metrics.add([0.1, 0.5, 1.25])
    metrics.add([0.3, 0.75, 4.0])
    metrics.begin_epoch()
    metrics.add(None)
    metrics.add([0.7, 0.625, 2.0])
    assert metrics.results() == {
        "policy/kl": 0.7,
        "policy/kl_max": 0.7,
        "policy/ratio_min": 0.5,
        "policy/ratio_max": 4.0,
    }


def test_advantages_have_their_range_as_long_as_it_is_finite() -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.add_rollout(torch.tensor([1.0, -3.0, 2.5]))
    assert metrics.results() == {"advantage/min": -3.0, "advantage/max": 2.5}


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_range_that_is_not_finite_is_left_out(broken: float) -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.add_rollout(torch.tensor([1.0, broken, 2.5]))
    assert metrics.results() == {}
