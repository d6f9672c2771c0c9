from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from arena.environment_spec import EnvironmentRequest
from arena.envs.batched.connect_four import ConnectFour
from arena.envs.inspect import inspect_environment
from tests.support import Clock
from tools.bench.measure import Measurement, Stage, compare, harmonic, timed, warm_rate
from tools.bench.play import PlainLoop, RandomGame, random_play
from tools.bench.profile import Stopwatch, stage_shares, timed_calls
from tools.bench.stages import Products
from tools.bench.subject import Subject, load_subject


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
    # The ratios are .5, .9, .75: their median is not the ratio of the medians, 50 / 100.
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
    # The rates are 1, 4, 5 and 2, 3, 6.
    assert (found.value, found.bound_value) == (4.0, 3.0)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_work_is_repeated_until_the_time_has_passed() -> None:
    clock = FakeClock()
    # There are three calls of 0.4 s: the first two take less than a second.
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
    # There is one call of each, and 2 * 5 measurements of one second.
    assert clock.now == pytest.approx(100.0 + 0.75 + 10.0)


def test_parts_that_follow_each_other_add_their_times() -> None:
    # 1 / (1/10 + 1/10 + 1/5)
    assert harmonic(10.0, 10.0, 5.0) == pytest.approx(2.5)


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
    # The outer stage has 2 + 3, the inner one 1, and 4 are in no stage.
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


def test_profiled_work_is_repeated_until_the_time_has_passed() -> None:
    child, started = Child(), CLOCK.now_s

    def work() -> int:
        child.outer()
        return 1

    shares = stage_shares(work, methods=METHODS, seconds=10.0, clock=CLOCK)
    assert CLOCK.now_s - started == 12.0
    assert shares == {"inference": pytest.approx(1 / 6), "update": pytest.approx(5 / 6)}


SIZES = (5, 4, 3)


def test_the_products_are_those_of_a_linear_network() -> None:
    torch.manual_seed(1)
    products = Products(SIZES, num_rows=6)
    weights = [weight.clone().requires_grad_() for weight in products._weights]
    observation = products._rows[0]
    outputs = observation @ weights[0].t() @ weights[1].t()

    products.forward()
    assert torch.allclose(products._rows[-1], outputs.detach(), atol=1e-6)

    torch.autograd.backward(outputs, products._row_gradients[-1])
    products.backward()
    for weight, gradient in zip(weights, products._weight_gradients, strict=True):
        assert weight.grad is not None
        assert torch.allclose(gradient, weight.grad, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_multiplies_every_minibatch_in_its_dtype(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    multiply = torch.mm

    def counting(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        assert {a.dtype, b.dtype, out.dtype} == {dtype}
        rows.append(len(a))
        return multiply(a, b, out=out)

    products = Products(SIZES, num_rows=12, dtype=dtype)
    monkeypatch.setattr(torch, "mm", counting)
    # There are three epochs of 4 minibatches.
    products.update(3 * 4)
    # Two layers have 2 products forward, 2 for the weights, 1 for the gradient between them.
    assert len(rows) == 3 * 4 * 5
    assert rows.count(12) == 3 * 4 * 3


@pytest.fixture(scope="module")
def tag() -> Subject:
    return load_subject("simple_tag", ["environment.num_envs=2"])


def test_a_bare_game_is_played_for_ever() -> None:
    games = 32
    play = RandomGame(
        ConnectFour(games, device=torch.device("cpu")),
        num_games=games,
        generator=torch.Generator().manual_seed(1),
    )
    # Games last at most 42 moves, so without a reset no decision would follow.
    assert [play() for _ in range(100)] == [games] * 100


@pytest.mark.parametrize(
    ("environment_id", "decisions"),
    [("classic/tictactoe-v3", 1), ("mpe2/simple_spread_v3", 3), ("classic/rps-v2", 2)],
)
def test_a_plain_loop_goes_on_from_episode_to_episode(environment_id: str, decisions: int) -> None:
    kwargs = {"max_cycles": 4} if "mpe2" in environment_id else {}
    spec = inspect_environment(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory="")
    )
    play = PlainLoop(spec, num_envs=2, launch_directory="")
    assert [play() for _ in range(40)] == [2 * decisions] * 40
    play.close()


def test_random_play_counts_every_decision(tag: Subject) -> None:
    env = tag.make_env()
    play = random_play(
        env,
        actions=tag.players.actions,
        generator=torch.Generator().manual_seed(1),
    )
    # Two environments have three predators and one prey each, and all decide at once.
    assert play() == 2 * 4
    env.close()
