"""Signals that come together are one request."""

from __future__ import annotations

from arena.processes.bursts import TOGETHER_S, Bursts


def test_copies_of_one_signal_are_one_request_and_a_later_one_is_another() -> None:
    now_s = 0.0
    bursts = Bursts(clock=lambda: now_s)
    assert bursts.is_new("SIGTERM")
    for _ in range(3):
        # Each is measured from the one before it.
        now_s += 0.9 * TOGETHER_S
        assert not bursts.is_new("SIGTERM")
    assert bursts.is_new("SIGINT")
    now_s += 1.1 * TOGETHER_S
    assert bursts.is_new("SIGTERM")
