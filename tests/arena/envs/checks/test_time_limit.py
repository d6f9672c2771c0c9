from __future__ import annotations

import signal
import threading
import time

import pytest

from arena.envs.checks.time_limit import TimeLimit


def forever() -> None:
    while True:
        try:
            sum(range(100))
        except Exception:
            continue


def test_a_stage_that_never_ends_is_left_and_told_with_its_place() -> None:
    limit = TimeLimit(30.0)
    with limit.stage("spinning", share=0.01):
        forever()
    (when,) = limit.cut_off.values()
    assert list(limit.cut_off) == ["spinning"]
    assert "test_time_limit.py" in when
    assert when.endswith("in forever")
    with limit.stage("quick"):
        pass
    assert list(limit.cut_off) == ["spinning"]


def test_what_was_collected_is_kept() -> None:
    collected: list[int] = []
    with TimeLimit(30.0).stage("collecting", share=0.005):
        while True:
            collected.append(len(collected))
    assert collected == list(range(len(collected)))
    assert collected


def test_a_share_is_of_what_is_left() -> None:
    now_s = 0.0
    limit = TimeLimit(100.0, clock=lambda: now_s)
    now_s = 60.0
    assert limit.left_s == 40.0
    now_s = 200.0
    assert limit.left_s == 0.0
    with limit.stage("too late"):
        forever()
    assert limit.cut_off["too late"].startswith("after 0 s")


def test_a_timer_of_another_is_given_back() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    others = signal.setitimer(signal.ITIMER_REAL, 50.0)
    try:
        with TimeLimit(60.0).stage("short"):
            pass
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, *others)
        assert 40.0 < left_s <= 50.0
        assert callable(signal.getsignal(signal.SIGALRM))
        assert rung == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_a_stage_takes_as_long_as_it_takes() -> None:
    done = []

    def work() -> None:
        with TimeLimit(0.001).stage("slow"):
            done.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_users_errors_pass() -> None:
    with pytest.raises(KeyError), TimeLimit(30.0).stage("broken"):
        raise KeyError("x")
