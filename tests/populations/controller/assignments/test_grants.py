"""The controller grants what learners hold, as long as they hold it."""

from __future__ import annotations

import pytest

from arena.errors import CheckpointError
from arena.transfer.terms import check_granted
from arena.wire.keys import holder_of
from populations.controller.assignments.validation import open_grants, open_leases
from populations.controller.state.events import LearnerLeft
from tests.populations.controller.simulated import make_world


def test_every_honest_checkpoint_is_granted_until_its_assignment_ends() -> None:
    world = make_world()
    learner = world.join()
    num_published = 0
    for _ in range(40):
        held = open_leases(world.state.crew.learners)
        before = open_grants(
            world.state.settings.setup, world.state.tables, world.state.crew.learners
        )
        event = world.work(learner)
        assert event is not None
        for manifest in event.manifests.values():
            check_granted(manifest, before[holder_of(learner)])
            num_published += 1
        world.handle(event)
        assert open_leases(world.state.crew.learners) != held
        for manifest in event.manifests.values():
            # Its next assignment goes on from there; the same checkpoint again is of the old one.
            with pytest.raises(CheckpointError):
                check_granted(
                    manifest,
                    open_grants(
                        world.state.settings.setup, world.state.tables, world.state.crew.learners
                    ).get(holder_of(learner), ()),
                )
    assert num_published > 20


def test_a_learner_that_is_lost_may_publish_nothing() -> None:
    world = make_world()
    learner = world.join()
    assert open_grants(world.state.settings.setup, world.state.tables, world.state.crew.learners)[
        holder_of(learner)
    ]
    world.handle(LearnerLeft(learner=learner, reason=""))
    assert learner not in world.state.crew.learners
    assert (
        open_grants(world.state.settings.setup, world.state.tables, world.state.crew.learners) == {}
    )
