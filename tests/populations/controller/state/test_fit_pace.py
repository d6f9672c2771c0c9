from __future__ import annotations

from itertools import pairwise

import pytest

from arena.types import LearnerId
from populations.controller.rating_fit import fit_input, fit_ratings
from populations.controller.state.clocks import FitPace
from populations.controller.state.events import RatingsFitted, Ticked
from tests.populations.controller.simulated import DUEL, World, make_world


def test_a_pause_is_nine_times_the_fit() -> None:
    pace = FitPace()
    assert pace.due_s < 0.0
    pace.begin(100.0)
    pace.end(102.0)
    assert pace.due_s == 120.0


def fits(*, seconds: float, deterministic: bool = False, most: int = 1000) -> list[float]:
    """Times at which fits were asked for in a league whose fits take some seconds."""
    world = make_world(
        {
            **DUEL,
            "evaluation": {"share": 0.5},
            "stop": {"agent_steps_per_policy": 16_000},
            "deterministic": deterministic,
        }
    )
    learner = world.join()
    world.beat(learner)
    asked: list[float] = []
    while world.state.phase.name == "training" and len(asked) < most:
        world.now_s += 0.25
        world.state.crew.learners[learner].last_heard_s = world.now_s
        if not world.state.fits.running:
            finish(world, learner)
        if world.fits:
            asked.append(world.now_s)
            fitted = fit_ratings(fit_input(world.fits.pop()))
            world.now_s += seconds
            world.handle(RatingsFitted(ratings=fitted))
        world.explore()
        world.handle(Ticked())
    # The rest is fitted at once, for the end waits for it.
    assert len(asked) == most or world.state.fits.running or not world.state.fits.are_stale()
    return asked


def finish(world: World, learner: LearnerId) -> None:
    event = world.work(learner)
    if event is not None:
        world.handle(event)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
def test_fits_take_a_tenth_of_a_core(seconds: float) -> None:
    asked = fits(seconds=seconds, most=16)
    # The last one is asked for at the end of training, which waits for it.
    pauses = [after - before for before, after in pairwise(asked[:-1])]
    assert len(pauses) > 2
    assert min(pauses) >= 10.0 * seconds
    # As soon as there are matches after the pause.
    assert min(pauses) < 10.0 * seconds + 2.0


@pytest.mark.slow
def test_a_deterministic_run_fits_at_once() -> None:
    assert len(fits(seconds=2.0, deterministic=True)) > 2 * len(fits(seconds=2.0))
