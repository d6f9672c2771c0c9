"""Simulated runs in which policies exploit soon, and that can be stopped while they decide."""

from __future__ import annotations

from populations.controller.indexes.pbt_decisions import PbtDecisions
from populations.controller.state.events import (
    ControllerStarted,
    Now,
)
from populations.controller.state.state import make_state
from populations.controller.state.transaction import Transaction
from populations.records.rows import EventRow, PolicyRow
from tests.populations.controller.simulated import DUEL, World, make_world
from tests.populations.controller.state.test_state import fold

PBT: dict[str, object] = {**DUEL["pbt"]}  # type: ignore[dict-item]
EAGER: dict[str, object] = {**DUEL, "pbt": {**PBT, "reference": False}, "learners": 1}


def eager_world(**sections: object) -> World:
    """A world in which learning rates make a difference, so that policies exploit."""
    world = make_world({**EAGER, **sections})
    world.learning = lambda trainee: 5e4 * trainee.hyperparameters["learning_rate"]
    world.join()
    return world


def run_until_pending(world: World, kind: str) -> PolicyRow:
    """Go on until a decision of some kind waits for its answer."""
    for _ in range(400):
        for policy in world.state.tables.policies.values():
            if policy.pending.get("kind") == kind:
                return policy
        world.explore()
        step_without_answers(world)
    raise AssertionError(f"nobody decided to {kind}")


def step_without_answers(world: World) -> None:
    """Learners work and ratings are fitted, but nobody explores."""
    world.now_s += 1.0
    for learner in list(world.given):
        world.state.learners[learner].last_heard_s = world.now_s
        event = world.work(learner)
        if event is not None:
            world.handle(event)
    world.fit()


def transaction(world: World) -> Transaction:
    return world.state.begin(Now(monotonic_s=world.now_s, utc=""))


def kill_with_everything_pending(world: World) -> None:
    """Controller and learners die; another controller loads what was committed."""
    events = [row for row in world.committed if isinstance(row, EventRow)]
    pbt_decisions = PbtDecisions.from_events(events)
    tables = fold(world.committed)
    world.state = make_state(world.state.config, world.setup, tables, pbt_decisions=pbt_decisions)
    world.given.clear()
    world.questions.clear()
    world.fits.clear()
    world.handle(ControllerStarted())
    world.join()
