from __future__ import annotations

from arena.learning.update_metrics import UpdateMetrics

NAMES = ("loss/total", "policy/kl")


def test_losses_are_means_over_all_epochs_and_diagnostics_over_the_last() -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.add(None)
    metrics.add([2.0, 30.0])
    assert metrics.means() == {"loss/total": 1.5, "policy/kl": 20.0}
    metrics.begin_epoch()
    metrics.add([6.0, 5.0])
    assert metrics.means() == {"loss/total": 3.0, "policy/kl": 5.0}
    assert metrics.skipped == 1


def test_what_was_not_measured_is_not_there() -> None:
    metrics = UpdateMetrics(NAMES)
    assert metrics.means() == {}
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.begin_epoch()
    metrics.add(None)
    assert metrics.means() == {"loss/total": 1.0}
