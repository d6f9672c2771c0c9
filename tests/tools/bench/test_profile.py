from __future__ import annotations

import pytest

from tests.support import Clock
from tools.bench.profile import Stopwatch, stage_shares, timed_calls

CLOCK = Clock()


class Parent:
    def inherited(self) -> str:
        CLOCK.now_s += 1.0
        return "inherited"


class Child(Parent):
    def outer(self) -> str:
        CLOCK.now_s += 2.0
        self.inherited()
        CLOCK.now_s += 3.0
        return "outer"

    def fails(self) -> None:
        CLOCK.now_s += 5.0
        raise KeyError("it does")


METHODS = [
    ("update", Child, "outer"),
    ("inference", Child, "inherited"),
    ("environment", Child, "fails"),
]


def test_time_within_another_stage_is_the_inner_ones() -> None:
    stopwatch = Stopwatch(CLOCK)
    with timed_calls(stopwatch, METHODS):
        stopwatch.start()
        assert Child().outer() == "outer"
        CLOCK.now_s += 4.0
    # 2 + 3 in the outer one, 1 in the inner one, 4 in none.
    assert stopwatch.shares() == {"inference": 0.1, "update": 0.5, "other": 0.4}


def test_a_stage_ends_where_its_call_raises() -> None:
    stopwatch = Stopwatch(CLOCK)
    with timed_calls(stopwatch, METHODS):
        stopwatch.start()
        with pytest.raises(KeyError):
            Child().fails()
        CLOCK.now_s += 15.0
    assert stopwatch.shares() == {"environment": 0.25, "other": 0.75}


def test_the_methods_are_as_they_were_afterwards() -> None:
    before = dict(vars(Child))
    with timed_calls(Stopwatch(), METHODS):
        assert "inherited" in vars(Child)
        with pytest.raises(KeyError):
            Child().fails()
    assert dict(vars(Child)) == before


def test_work_is_repeated_until_the_time_has_passed() -> None:
    child, started = Child(), CLOCK.now_s

    def work() -> int:
        child.outer()
        return 1

    shares = stage_shares(work, methods=METHODS, seconds=10.0, clock=CLOCK)
    assert CLOCK.now_s - started == 12.0
    assert shares == {"inference": pytest.approx(1 / 6), "update": pytest.approx(5 / 6)}
