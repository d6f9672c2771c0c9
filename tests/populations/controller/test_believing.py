"""A faulty learner: what it sends counts for nothing and brings nothing down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from arena.types import CheckpointRef, Entrant, PairScore, PolicyId, Tally
from populations.controller.events import AssignmentFinished
from tests.populations.controller.simulated import World, make_world


def training_result(world: World) -> AssignmentFinished:
    """A result of a policy's second training assignment: its counters could fall."""
    learner = world.join()
    for _ in range(50):
        event = world.work(learner)
        assert event is not None
        (updates,) = [m.learner_updates for m in event.manifests.values()] or [0]
        if event.finished.tallies and updates > 60:
            return event
        world.handle(event)
    raise AssertionError("nothing was trained")


def with_tally(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    """The event with its first tally changed."""
    first, *others = event.finished.tallies
    tally: Tally = replace(first, **changes)  # type: ignore[arg-type]
    return replace(event, finished=replace(event.finished, tallies=(tally, *others)))


def with_scores(
    event: AssignmentFinished, *, score_sum: float, square_sum: float
) -> AssignmentFinished:
    """The event with other sums of scores in its first tally."""
    pairs = event.finished.tallies[0].pairs
    changed = tuple(replace(p, score_sum=score_sum, square_sum=square_sum) for p in pairs)
    return with_tally(event, pairs=changed)


def with_key(event: AssignmentFinished, key: str) -> AssignmentFinished:
    """The event with its checkpoint somewhere else."""
    (published,) = event.finished.checkpoints
    (manifest,) = event.manifests.values()
    ref = CheckpointRef(digest=published.checkpoint.digest, key=key)
    moved = replace(event.finished, checkpoints=(replace(published, checkpoint=ref),))
    return replace(event, finished=moved, manifests={key: manifest})


def with_manifest(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    """The event with another manifest."""
    ((key, manifest),) = event.manifests.items()
    return replace(event, manifests={key: manifest.model_copy(update=changes)})


def for_another_policy(event: AssignmentFinished) -> AssignmentFinished:
    """The event as if it were about another policy."""
    (published,) = event.finished.checkpoints
    other = replace(published, policy=PolicyId("player/p099"))
    return replace(event, finished=replace(event.finished, checkpoints=(other,)))


FAULTS: dict[str, Callable[[AssignmentFinished], AssignmentFinished]] = {
    "checkpoints of": for_another_policy,
    "says it is": lambda event: with_manifest(event, generation=7),
    "fell": lambda event: with_manifest(event, agent_steps=0, learner_updates=0),
    "not where it belongs": lambda event: with_key(event, "imports/player"),
    "did not play": lambda event: with_tally(event, entrants=(Entrant("a" * 64),) * 2),
    "does not add up": lambda event: with_tally(event, matches=1),
    "add up": lambda event: with_tally(
        event, pairs=(PairScore(first=0, second=9, wins=4, draws=0, losses=0),)
    ),
    "not add": lambda event: with_tally(event, return_sum=(1.0,)),
    "does not add": lambda event: with_scores(event, score_sum=1e9, square_sum=1.0),
    "of (": lambda event: with_tally(event, distinct=0),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_result_that_does_not_fit_is_refused_and_given_out_again(said: str) -> None:
    world = make_world()
    event = training_result(world)
    before = world.state.tables.run
    world.handle(FAULTS[said](event))
    failed = world.events("assignment_failed")
    assert said in str(failed[-1].data["reason"])
    after = world.state.tables.run
    assert (after.matches, after.agent_steps) == (before.matches, before.agent_steps)
    assert event.finished.assignment_id in world.state.tables.assignments
    attempts = [message.attempt for message in world.given[event.learner]]
    assert 2 in attempts


def test_the_same_result_unchanged_is_believed() -> None:
    world = make_world()
    event = training_result(world)
    world.handle(event)
    assert not world.events("assignment_failed")
    assert event.finished.assignment_id not in world.state.tables.assignments
