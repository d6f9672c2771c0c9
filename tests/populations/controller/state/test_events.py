"""Events: plain data, each of which the machine takes in with the effect that it names."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import get_args

import pytest
from msgspec.structs import replace

from arena.types import LearnerId, PlayerId, PolicyId
from arena.wire.messages import Heartbeat
from populations.choices import number_of
from populations.controller.machine import handle
from populations.controller.rating_fit import fit_input, fit_ratings, snapshot
from populations.controller.state import events
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    ControllerStarted,
    Event,
    GhostsLinked,
    HeartbeatReceived,
    HyperparametersExplored,
    LearnerExited,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    Now,
    RatingsFitted,
    StopRequested,
    StrangerSpoke,
    Ticked,
)
from populations.core import Exploration
from populations.hooks.findings import Finding
from populations.records.rows import CheckpointRow, EventRow, Json
from tests.populations.controller.simulated import World, make_world
from tests.populations.rows import make_checkpoint, make_failed, make_ghost

KINDS: tuple[type[Event], ...] = get_args(Event)
FIRST = LearnerId("learner-1")
POLICY = PolicyId("player/p000")
GHOST = PlayerId("player/p000@000000001000")

Case = Callable[[World], tuple[Event, Callable[[], object]]]
"""An event, and a question whose answer it changes to True."""


def joined(world: World) -> tuple[Event, Callable[[], object]]:
    learner = LearnerId("learner-9")
    hello = world.hello(learner)
    event = LearnerJoined(learner=learner, hello=hello, slot=None)
    return event, lambda: learner in world.state.learners


def heard(world: World) -> tuple[Event, Callable[[], object]]:
    beat = Heartbeat(assignment_id=None, attempt=0, progress=5, agent_steps=0, rss_bytes=1)
    event = HeartbeatReceived(learner=FIRST, heartbeat=beat)
    return event, lambda: world.state.learners[FIRST].progress == 5


def finished(world: World) -> tuple[Event, Callable[[], object]]:
    event = world.work(FIRST)
    assert event is not None
    return event, lambda: world.state.tables.run.assignments_finished == 1


def failed(world: World) -> tuple[Event, Callable[[], object]]:
    message = world.given[FIRST][0]
    said = make_failed(message)
    event = AssignmentFailed(learner=FIRST, failed=said)
    return event, lambda: len(world.events("assignment_failed")) == 1


def is_gone(world: World) -> bool:
    return FIRST not in world.state.learners


def exited(world: World) -> tuple[Event, Callable[[], object]]:
    return LearnerExited(slot=0, code=-9), lambda: is_gone(world)


def stranger(world: World) -> tuple[Event, Callable[[], object]]:
    learner = LearnerId("stranger")
    return StrangerSpoke(learner=learner), lambda: learner in {name for name, _ in world.refused}


def fitted(world: World) -> tuple[Event, Callable[[], object]]:
    state = world.state
    found = fit_ratings(fit_input(snapshot(state.league)))
    rows = {name: known.row for name, known in found.items()}
    return RatingsFitted(ratings=found), lambda: state.tables.ratings == rows and bool(rows)


def explored(world: World) -> tuple[Event, Callable[[], object]]:
    policy = world.state.tables.policies[POLICY]
    old = dict(policy.hyperparameters)
    new = {**old, "learning_rate": number_of(old["learning_rate"]) / 2}
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": old,
        "decision": {},
        "seed": [1, 0, 2],
    }
    world.state.tables.policies[POLICY] = replace(policy, pending=pending)
    event = HyperparametersExplored(
        policy=POLICY, exploration=Exploration(old=old, new=new, moves={})
    )
    return event, lambda: world.state.tables.policies[POLICY].hyperparameters == new


def with_checkpoint(world: World) -> CheckpointRow:
    """Put a checkpoint into the tables, as one that is to be removed."""
    row = make_checkpoint(
        "populations/player/p000/000000001000-00000000",
        digest="0" * 64,
        weights_digest="1" * 64,
        policy=POLICY,
        agent_steps=1000,
        assignment_id=next(iter(world.state.tables.assignments)),
        state="doomed",
    )
    world.state.begin(Now(monotonic_s=0.0, utc="")).put(row)
    return row


def removed(world: World) -> tuple[Event, Callable[[], object]]:
    row = with_checkpoint(world)
    event = CheckpointsRemoved(keys=(row.key,))
    return event, lambda: world.state.tables.checkpoints[row.key].state == "deleted"


def linked(world: World) -> tuple[Event, Callable[[], object]]:
    row = with_checkpoint(world)
    ghost = make_ghost(
        POLICY,
        1000,
        player=GHOST,
        weights_digest=row.weights_digest,
        key="populations/player/p000/ghosts/000000001000-00000000",
        checkpoint=row.key,
    )
    world.state.begin(Now(monotonic_s=0.0, utc="")).put(ghost)
    return GhostsLinked(players=(GHOST,)), lambda: world.state.tables.ghosts[GHOST].linked


def reported(world: World) -> tuple[Event, Callable[[], object]]:
    event = Finding("sink_failed", "csv", "csv", "csv raised OSError")
    return event, lambda: ("sink_failed", "csv") in world.state.alerts.raised


def unreachable(world: World) -> tuple[Event, Callable[[], object]]:
    world.state.learners[FIRST].slot = None
    return LearnerUnreachable(learner=FIRST), lambda: is_gone(world)


def ticked(world: World) -> tuple[Event, Callable[[], object]]:
    world.state.learners[FIRST].last_heard_s -= world.state.patience.liveness_s + 1.0
    return Ticked(), lambda: is_gone(world)


CASES: dict[type[Event], Case] = {
    ControllerStarted: lambda world: (
        ControllerStarted(), lambda: world.state.tables.run.epoch == 2
    ),
    LearnerJoined: joined,
    HeartbeatReceived: heard,
    AssignmentFinished: finished,
    AssignmentFailed: failed,
    LearnerLeft: lambda world: (
        LearnerLeft(learner=FIRST, reason="done"), lambda: is_gone(world)
    ),
    LearnerUnreachable: unreachable,
    LearnerExited: exited,
    StrangerSpoke: stranger,
    RatingsFitted: fitted,
    HyperparametersExplored: explored,
    GhostsLinked: linked,
    CheckpointsRemoved: removed,
    Finding: reported,
    StopRequested: lambda world: (
        StopRequested(reason="SIGINT"),
        lambda: (world.state.phase, world.state.reason) == ("stopping", "SIGINT"),
    ),
    Ticked: ticked,
}  # fmt: skip


@pytest.fixture
def world() -> World:
    """A run with a learner of the launcher's that has work."""
    world = make_world()
    world.join(slot=0)
    return world


def test_every_class_of_the_module_is_an_event_or_its_time() -> None:
    classes = {
        found
        for _, found in inspect.getmembers(events, dataclasses.is_dataclass)
        if found.__module__ == events.__name__
    }
    assert {*classes, Finding} == {*KINDS, Now}
    assert set(CASES) == set(KINDS), "each has a case here"


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_taken_in_by_the_machine(kind: type[Event], world: World) -> None:
    event, has_happened = CASES[kind](world)
    assert type(event) is kind
    assert not has_happened()
    world.handle(event)
    assert has_happened()


def test_durations_are_of_the_controllers_clock_and_utc_is_for_records(world: World) -> None:
    started_s = world.state.started_s
    said, _ = failed(world)
    tx = handle(world.state, said, Now(monotonic_s=started_s + 9.0, utc="2026-01-02"))
    assert world.state.tables.run.elapsed_s == 9.0
    assert {row.time for row in tx.rows if isinstance(row, EventRow)} == {"2026-01-02"}
    # A wall clock that is set back changes nothing but what is written.
    stop = StopRequested(reason="SIGINT")
    handle(world.state, stop, Now(monotonic_s=started_s + 11.0, utc="1999-12-31"))
    assert world.state.stopping_s == started_s + 11.0
    assert not is_gone(world)
