"""Signals that come together are one request."""

from __future__ import annotations

from arena.processes.bursts import TOGETHER_S, Bursts


def test_copies_of_one_signal_are_one_request_and_a_later_one_is_another() -> None:
    now_s = 0.0
    bursts = Bursts(clock=lambda: now_s)
    assert bursts.is_new("SIGTERM")
    for _ in range(3):
        now_s += 0.3 * TOGETHER_S
        assert not bursts.is_new("SIGTERM")
    assert bursts.is_new("SIGINT")
    now_s += 1.1 * TOGETHER_S
    assert bursts.is_new("SIGTERM")


def test_a_key_that_is_hammered_is_several_requests() -> None:
    now_s = 0.0
    bursts = Bursts(clock=lambda: now_s)
    new = []
    for _ in range(20):
        new.append(bursts.is_new("SIGINT"))
        now_s += 0.21 * TOGETHER_S
    assert sum(new) == 4
