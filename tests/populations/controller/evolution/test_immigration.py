"""Policies from outside in the places of copies."""

from __future__ import annotations

import pytest

from arena.types import Digest, PolicyId, WeightsRef, trainee_entrant
from arena.wire.messages import Train
from populations.audit.verify import check_evolution
from populations.controller.evolution.resets import immigrant_key
from populations.controller.state.events import AssignmentFailed
from populations.records.rows import AssignmentRow
from tests.populations.controller.eager import PBT, eager_world
from tests.populations.rows import make_failed

IMMIGRATION: dict[str, object] = {**PBT, "reference": False, "immigration": {"probability": 1.0}}


def test_a_fresh_immigrant_keeps_its_counters_and_nobody_waits_for_it() -> None:
    world = eager_world(pbt=IMMIGRATION)
    for _ in range(400):
        world.step()
        if world.events("immigrated"):
            break
    (event,) = world.events("immigrated")
    policy = world.state.tables.policies[PolicyId(event.subject)]
    assert event.data["from"] == "fresh"
    assert event.data["instead_of"] != event.subject
    assert "gap" in event.data
    others = {
        row.policy: row.agent_steps
        for row in world.state.tables.policies.values()
        if row.policy != policy.policy
    }
    trainee = None
    while trainee is None:
        world.step()
        trainee = next(
            (
                row.message.trainees[0]
                for row in world.state.tables.assignments.values()
                if isinstance(row.message, Train) and row.message.agent_steps == 0
            ),
            None,
        )
    assert any(
        world.state.tables.policies[PolicyId(name)].agent_steps > steps
        for name, steps in others.items()
    )
    assert trainee.policy == policy.policy
    assert trainee.checkpoint is None
    assert trainee.initial_weights is None
    assert trainee.agent_steps == policy.agent_steps > 0
    assert trainee.learner_updates == policy.learner_updates > 0
    assert trainee.generation == policy.generation >= 1
    assert world.state.league.matches_in_generation(policy) == 0
    assert list(check_evolution(world.state.tables)) == []
    world.run()
    assert world.state.tables.run.state == "finished"
    # A policy that has finished copies a donor, because fresh weights would never be trained.
    assert all(int(str(e.data["agent_steps"])) >= 6000 for e in world.events("exploited"))
    for row in world.state.tables.policies.values():
        assert row.checkpoint is not None
        assert row.agent_steps >= 6000
    causes = {row.cause for row in world.state.tables.generations.values()}
    assert "immigrate" in causes
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_a_foreign_immigrant_starts_from_the_imported_weights() -> None:
    world = eager_world(
        pbt={**IMMIGRATION, "immigration": {"probability": 1.0, "from": ["runs/a", "runs/b"]}}
    )
    imported = {
        key: WeightsRef(digest=Digest(f"{index}" * 64), key=key)
        for index in range(2)
        if (key := immigrant_key("player", index))
    }
    world.state.settings.immigrants = imported
    world.run()
    events = world.events("immigrated")
    assert {event.data["from"] for event in events} <= {"runs/a", "runs/b"}
    started = [
        trainee.initial_weights
        for row in world.committed
        if isinstance(row, AssignmentRow) and isinstance(row.message, Train) and row.attempt == 1
        for trainee in row.message.trainees
        if trainee.agent_steps > 0 and trainee.checkpoint is None and row.status == "queued"
    ]
    assert len(started) == len(events) > 0
    for event, weights in zip(events, started, strict=True):
        assert weights in imported.values()
        row = world.state.tables.generations[
            trainee_entrant(PolicyId(event.subject), generation=int(str(event.data["generation"])))
        ]
        assert (row.cause, row.parent) == ("immigrate", event.data["from"])


def test_an_immigrant_whose_weights_are_damaged_is_given_up_for_a_donors() -> None:
    immigration = {"probability": 1.0, "from": ["runs/a"]}
    world = eager_world(pbt={**IMMIGRATION, "immigration": immigration})
    key = immigrant_key("player", 0)
    world.state.settings.immigrants = {key: WeightsRef(digest=Digest("0" * 64), key=key)}
    victim = None
    for _ in range(400):
        for learner, queue in list(world.given.items()):
            message = queue[0] if queue else None
            if isinstance(message, Train) and message.trainees[0].initial_weights is not None:
                queue.pop(0)
                victim = message.trainees[0].policy
                failed = make_failed(
                    message,
                    kind="checkpoint",
                    reason="weights.safetensors: sha256 differs",
                    policy=victim,
                    key=key,
                )
                world.handle(AssignmentFailed(learner=learner, failed=failed, damage="a byte"))
        world.step()
        if world.events("exploited"):
            break
    (event,) = world.events("exploited")
    assert event.subject == victim == world.events("quarantined")[0].subject
    policy = world.state.tables.policies[PolicyId(event.subject)]
    assert policy.state == "active"
    assert policy.parent == event.data["donor"]
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_nobody_immigrates_unless_asked() -> None:
    world = eager_world()
    world.run()
    assert not world.events("immigrated")


@pytest.mark.slow
def test_the_reference_and_who_is_done_never_immigrate() -> None:
    world = eager_world(pbt={**IMMIGRATION, "reference": True})
    world.learning = lambda trainee: 0.0 if trainee.policy == "player/p000" else 60.0
    world.run()
    assert any(event.subject == "player/p000" for event in world.events("exploited", "kept"))
    for event in world.events("immigrated"):
        assert event.subject != "player/p000"
        assert int(str(event.data["agent_steps"])) < 6000
