"""What evaluations say about returns, against numbers computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from pettingzoo.butterfly import cooperative_pong_v6

from arena.types import Entrant, Seat, Tally
from experiments.learning.returns import returns_trend
from populations.views.questions.inspection import Inspection
from tests.assets.pixels import EVERY, PongPictures

SEAT = Seat(name="home", side="team", population="ant", agents=("a",))


def run_with(returns: dict[str, tuple[int, int, float]]) -> Inspection:
    """A run of cooperation: by checkpoint, agent steps (of 100), matches and their mean return."""
    tallies = [
        Tally(
            entrants=(Entrant(name),),
            matches=matches,
            pairs=(),
            return_sum=(matches * mean,),
            return_sum_of_squares=(matches * mean**2,),
            length_sum=matches,
        )
        for name, (_, matches, mean) in returns.items()
    ]
    rows = [SimpleNamespace(kind="evaluate", tally=tally) for tally in tallies]
    origins = {
        name: SimpleNamespace(agent_steps=steps, policy="ant/p000")
        for name, (steps, _, _) in returns.items()
    }
    run = SimpleNamespace(
        reader=SimpleNamespace(all_tallies=lambda: [*rows, SimpleNamespace(kind="train")]),
        league=SimpleNamespace(checkpoints=origins, seats=(SEAT,), is_cooperation=True),
        tables=SimpleNamespace(policies={"ant/p000": SimpleNamespace(agent_steps=100)}),
    )
    return cast("Inspection", run)


def test_a_straight_rise_has_no_error() -> None:
    run = run_with({"a": (0, 1, 2.0), "b": (25, 9, 4.0), "c": (50, 3, 6.0), "d": (100, 2, 10.0)})
    rise, error = returns_trend(run, population="ant") or (0.0, 0.0)
    assert rise == pytest.approx(8.0)
    assert error == pytest.approx(0.0, abs=1e-6)


def test_a_rise_and_its_error_by_hand() -> None:
    # Shares 0, .5, .5, 1 with weights 1, 1, 1, 1: slope (4 - 1) / 1 = 3, line 1 + 3 x up to its
    # height, residuals 0, 1.5, -1.5, 0; variance 4.5 / 2, divided by sum (x - .5)^2 = .5.
    run = run_with({"a": (0, 4, 1.0), "b": (50, 4, 4.0), "c": (50, 4, 1.0), "d": (100, 4, 4.0)})
    rise, error = returns_trend(run, population="ant") or (0.0, 0.0)
    assert rise == pytest.approx(3.0)
    assert error == pytest.approx((4.5 / 2 / 0.5) ** 0.5)


def test_few_checkpoints_show_no_rise() -> None:
    run = run_with({"a": (0, 4, 1.0), "b": (50, 4, 4.0), "c": (100, 4, 5.0)})
    assert returns_trend(run, population="ant") is None


MAX_STEPS = 100


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_pettingzoos_game(seed: int) -> None:
    """Move by move: what is seen, what is paid, when it ends."""
    theirs = cooperative_pong_v6.parallel_env(render_mode="rgb_array")
    ours = PongPictures(frames=1)
    generator = np.random.default_rng(seed)
    their_pictures, _ = theirs.reset(seed=seed)
    our_pictures, _ = ours.reset(seed=seed)
    for _ in range(MAX_STEPS):
        for agent, picture in our_pictures.items():
            assert picture.dtype == np.uint8
            np.testing.assert_array_equal(
                picture, their_pictures[agent][::EVERY, ::EVERY, :1], strict=True
            )
        if not theirs.agents:
            break
        actions = {agent: int(generator.integers(3)) for agent in theirs.agents}
        their_pictures, *told, _ = theirs.step(actions)
        our_pictures, *told_by_us, _ = ours.step(actions)
        assert told_by_us == told
    assert ours.agents == theirs.agents == []
    theirs.close()
    ours.close()


def test_several_frames_are_one_decision() -> None:
    single, triple = PongPictures(frames=1), PongPictures(frames=3)
    single.reset(seed=5)
    triple.reset(seed=5)
    actions = {"paddle_0": 1, "paddle_1": 2}
    while triple.agents:
        rewards = triple.step(actions)[1]
        paid = 0.0
        for _ in range(3):
            if single.agents:
                paid += single.step(actions)[1]["paddle_0"]
        assert rewards == {"paddle_0": pytest.approx(paid), "paddle_1": pytest.approx(paid)}
    assert single.agents == []
