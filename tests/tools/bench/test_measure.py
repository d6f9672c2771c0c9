from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.bench.measure import Measurement, Stage, compare, harmonic, timed, warm_rate


class FakeClock:
    """Moves on only when somebody works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, *, items: int) -> Callable[[], int]:
        def call() -> int:
            self.now += seconds
            return items

        return call


def stage(rates: list[float], bounds: list[float], unit: str = "rows/s") -> Stage:
    rate, bound = iter(rates).__next__, iter(bounds).__next__
    return Stage(name="play", unit=unit, rate=rate, bound_name="hardware", bound=bound)


def test_ratios_are_taken_round_by_round() -> None:
    found = compare(stage([50.0, 90.0, 30.0], [100.0, 100.0, 40.0]), rounds=3)
    # Ratios .5, .9, .75: their median is not the ratio of the medians, 50 / 100.
    assert found == Measurement(
        name="play",
        value=50.0,
        unit="rows/s",
        bound_name="hardware",
        bound_value=100.0,
        ratio=0.75,
        ratio_low=0.5,
        ratio_high=0.9,
        rounds=3,
    )


def test_times_are_shown_as_times_but_a_better_one_still_has_the_higher_ratio() -> None:
    found = compare(stage([1e5], [4e5], unit="us/decision"), rounds=1)
    assert found.value == pytest.approx(10.0)
    assert found.bound_value == pytest.approx(2.5)
    assert found.ratio == pytest.approx(0.25)


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, -1.0), (1.0, float("nan"))])
def test_what_cannot_be_compared_is_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"a rate must be greater than 0, got .* in play"):
        compare(stage([rates[0]], [rates[1]]), rounds=1)


def test_the_second_of_alternating_measurements_goes_first_in_every_other_round() -> None:
    order: list[str] = []

    def measuring(name: str) -> Callable[[], float]:
        def measure() -> float:
            order.append(name)
            return float(len(order))

        return measure

    sides = Stage(name="x", rate=measuring("a"), bound_name="y", bound=measuring("b"))
    found = compare(sides, rounds=3)
    # Rates 1, 4, 5 and 2, 3, 6.
    assert (found.value, found.bound_value) == (4.0, 3.0)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_work_is_repeated_until_the_time_has_passed() -> None:
    clock = FakeClock()
    # Three calls of 0.4 s: the first two are shorter than a second.
    assert timed(clock.work(0.4, items=6), seconds=1.0, clock=clock) == pytest.approx((18, 1.2))
    assert clock.now == pytest.approx(101.2)


def test_work_is_done_at_least_once() -> None:
    clock = FakeClock()
    assert timed(clock.work(8.0, items=4), seconds=0.1, clock=clock) == pytest.approx((4, 8.0))


def test_a_comparison_warms_up_and_measures_each_side_in_each_round() -> None:
    clock = FakeClock()
    slow, fast = (
        warm_rate(clock.work(seconds, items=10), seconds=1.0, clock=clock)
        for seconds in (0.5, 0.25)
    )
    found = compare(Stage(name="slow", rate=slow, bound_name="fast", bound=fast), rounds=5)
    assert [found.value, found.bound_value] == pytest.approx([20.0, 40.0])
    assert found.ratio == pytest.approx(0.5)
    assert found.rounds == 5
    # One call of each, and 2 * 5 times one second.
    assert clock.now == pytest.approx(100.0 + 0.75 + 10.0)


def test_parts_that_follow_each_other_add_their_times() -> None:
    # 1 / (1/10 + 1/10 + 1/5)
    assert harmonic(10.0, 10.0, 5.0) == pytest.approx(2.5)
