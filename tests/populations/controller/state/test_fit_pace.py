from __future__ import annotations

from itertools import pairwise

import pytest

from arena.types import LearnerId, PlayerId
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input
from populations.controller.state import pauses
from populations.controller.state.events import GhostsLinked, LinkGhosts, RatingsFitted, Ticked
from populations.controller.state.fits import FitPace
from populations.controller.state.transaction import Transaction
from tests.populations.controller.eager import transaction
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
    # The last results are fitted at once, because the end waits for them.
    assert len(asked) == most or world.state.fits.running or not world.state.fits.are_stale()
    return asked


def finish(world: World, learner: LearnerId) -> None:
    event = world.work(learner)
    if event is not None:
        world.handle(event)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
def test_fits_take_a_tenth_of_a_core(seconds: float) -> None:
    asked = fits(seconds=seconds, most=16)
    # The last fit is requested at the end of training, which waits for it.
    pauses = [after - before for before, after in pairwise(asked[:-1])]
    assert len(pauses) > 2
    assert min(pauses) >= 10.0 * seconds
    # A fit begins as soon as there are matches after the pause.
    assert min(pauses) < 10.0 * seconds + 2.0


@pytest.mark.slow
def test_a_deterministic_run_fits_at_once() -> None:
    assert len(fits(seconds=2.0, deterministic=True)) > 2 * len(fits(seconds=2.0))


def refused(world: World, **ghosts: tuple[PlayerId, ...]) -> Transaction:
    tx = transaction(world)
    pauses.refuse(world.state.blame, tx, reason="no space", **ghosts)
    return tx


def retried(world: World, *, after_s: float) -> Transaction:
    world.now_s += after_s
    tx = transaction(world)
    pauses.retry(world.state.blame.pause, tx)
    return tx


def test_waits_double_from_try_to_try_up_to_a_minute() -> None:
    world = make_world()
    waits = []
    refused(world)
    for _ in range(8):
        assert world.state.blame.pause is not None
        waits.append(world.state.blame.pause.wait_s)
        retried(world, after_s=world.state.blame.pause.wait_s)
        refused(world)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_refusals_while_it_waits_change_no_wait() -> None:
    world = make_world()
    refused(world)
    world.now_s += 0.5
    refused(world)
    pause = world.state.blame.pause
    assert pause is not None
    assert (pause.num_refusals, pause.wait_s, pause.is_trying) == (2, 1.0, False)
    retried(world, after_s=0.4)
    assert not pause.is_trying
    retried(world, after_s=0.1)
    assert pause.is_trying


def test_nothing_is_given_out_until_the_try_and_one_assignment_then() -> None:
    world = make_world()
    learner = world.join()
    assert pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    refused(world)
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    retried(world, after_s=1.0)
    assert pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    world.state.crew.learners[learner].held[0].given_s = world.now_s
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause)


def test_a_try_that_succeeds_ends_it_and_one_before_it_does_not() -> None:
    world = make_world()
    refused(world)
    pauses.accept(world.state.blame, transaction(world))
    assert world.state.blame.pause is not None
    retried(world, after_s=1.0)
    tx = transaction(world)
    pauses.accept(world.state.blame, tx)
    assert world.state.blame.pause is None
    assert [row.kind for row in tx.rows if hasattr(row, "kind")] == ["storage_recovered"]


def test_ghosts_that_were_refused_are_linked_again_first() -> None:
    world = make_world(joined=1, steps=10)
    ghost = next(iter(world.state.tables.ghosts.values()))
    refused(world, ghosts=(ghost.player,))
    assert pauses.is_unlinked(world.state.tables, world.state.blame.pause, ghost.key)
    assert not pauses.is_unlinked(world.state.tables, world.state.blame.pause, "elsewhere")
    tx = retried(world, after_s=1.0)
    assert [one.ghosts for one in tx.commands if isinstance(one, LinkGhosts)] == [(ghost,)]
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause), (
        "ghosts come first"
    )
    linked = GhostsLinked(players=(ghost.player,), refused=(), reason="")
    pauses.take_links(world.state.blame, transaction(world), linked)
    assert world.state.blame.pause is None
