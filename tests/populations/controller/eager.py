"""Simulated runs in which policies exploit soon, and that can be stopped while they decide."""

from __future__ import annotations

from populations.controller.state.events import Now
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow
from tests.populations.controller.simulated import DUEL, World, by_rate, made_once, make_world

PBT: dict[str, object] = {**DUEL["pbt"]}  # type: ignore[dict-item]
EAGER: dict[str, object] = {**DUEL, "pbt": {**PBT, "reference": False}, "learners": 1}


def eager_world(**sections: object) -> World:
    """A world in which learning rates make a difference, so that policies exploit."""
    return make_world({**EAGER, **sections}, joined=1, learning=by_rate)


@made_once
def pending_world(kind: str, **sections: object) -> World:
    """A world in which a decision of some kind waits for its answer."""
    world = eager_world(**sections)
    run_until_pending(world, kind)
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
        world.state.crew.learners[learner].last_heard_s = world.now_s
        event = world.work(learner)
        if event is not None:
            world.handle(event)
    world.fit()


def transaction(world: World) -> Transaction:
    return world.state.begin(Now(monotonic_s=world.now_s, utc=""))
