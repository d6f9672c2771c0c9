"""What follows from failures: checkpoints that are set aside, runs that end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, Digest, PolicyId, WeightsRef
from arena.wire.messages import Evaluate, Train
from populations.controller.assignments.failures import close, fall_back, lose_row
from populations.controller.evaluation.pairings import validation_pairings
from populations.controller.evolution import quarantine
from populations.controller.state.events import AssignmentFailed
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    DUEL,
    TAG,
    World,
    duel_spec,
    made_once,
    make_world,
    tag_spec,
)
from tests.populations.rows import make_assignment, make_failed

POLICY = PolicyId("player/p000")


@made_once
def played() -> World:
    return make_world(joined=1, steps=20)


def test_of_checkpoints_with_equal_steps_the_latest_is_fallen_back_to() -> None:
    world = played()
    tables = world.state.tables
    own = [row for row in tables.checkpoints.values() if row.policy == POLICY]
    last = max(own, key=lambda row: row.agent_steps)
    # An immigrant's first assignment has no steps of its own yet.
    taken_over = replace(
        last,
        key=f"{last.key}0",
        generation=last.generation + 1,
        assignment_id=AssignmentId(last.assignment_id + 1000),
    )
    tx = transaction(world)
    tx.put(taken_over)
    fall_back(world.state, tx, tables.policies[POLICY])
    assert tables.policies[POLICY].checkpoint == taken_over.key


def test_a_failure_is_the_reason_whatever_stopped_the_run_before() -> None:
    world = played()
    tx = transaction(world)
    world.state.phase.stop(tx, reason="interrupted", interrupted=True)
    world.state.phase.fail(tx, reason="the environment broke")
    world.state.phase.fail(tx, reason="no policy is left")
    state = world.state
    assert (state.phase.reason, state.phase.failed, state.phase.interrupted) == (
        "the environment broke",
        True,
        False,
    )


def test_without_a_checkpoint_that_verifies_a_policy_is_quarantined() -> None:
    world = played()
    tx = transaction(world)
    for row in list(world.state.tables.checkpoints.values()):
        if row.policy == POLICY:
            tx.put(replace(row, state="corrupt"))
    fall_back(world.state, tx, world.state.tables.policies[POLICY])
    assert world.state.tables.policies[POLICY].state == "quarantined"
    assert not any(
        trainee.policy == POLICY
        for row in world.state.tables.assignments.values()
        for trainee in (row.message.trainees if isinstance(row.message, Train) else ())
    ), "its open assignments end"
    quarantine.rescue_waiting(world.state, tx)
    assert world.state.tables.policies[POLICY].state == "quarantined", "no copy makes it good"


def test_what_was_seated_before_a_copy_is_not_held_against_what_replaced_it() -> None:
    world = played()
    tx, policies = transaction(world), world.state.tables.policies
    own, donor = POLICY, PolicyId("player/p001")
    tx.put(replace(policies[own], validated_generation=-1))
    (pairing,) = validation_pairings(world.state, num_matches=1)
    message = Evaluate(assignment_id=AssignmentId(1000), attempt=1, pairings=(pairing,), seed=1)
    row = make_assignment(message)

    def held_against() -> list[str]:
        tx.put(row)
        learner = world.state.crew.learners[next(iter(world.state.crew.learners))]
        lose_row(world.state, tx, learner, row, reason="it crashed")
        close(tx, row, "it crashed")
        return list(world.state.blame.ledger.outcomes.pop().suspects)

    generation = policies[own].generation
    assert held_against() == [f"{own}#{generation}"]
    trained = policies[donor].checkpoint
    tx.put(replace(policies[own], generation=generation + 1, checkpoint=trained, parent=donor))
    assert held_against() == []
    # The validation is of the copied weights, which the league knows as the donor's.
    pairings = validation_pairings(world.state, num_matches=1)
    row = replace(row, message=replace(message, pairings=pairings))
    assert held_against() == [f"{own}#{generation + 1}"]


@pytest.mark.parametrize("document", [DUEL, TAG], ids=["everybody", "one population"])
def test_from_damaged_weights_to_start_from_nobody_starts_again_and_again(
    document: dict[str, object],
) -> None:
    world = make_world(document, tag_spec() if document is TAG else duel_spec())
    name = next(iter(world.state.settings.config.populations))
    key = f"imports/{name}"
    world.state.settings.initial_weights = {name: WeightsRef(digest=Digest("0" * 64), key=key)}
    world.join()
    num_failed = 0
    for _ in range(40):
        for learner, queue in list(world.given.items()):
            while queue and isinstance(queue[0], Train) and queue[0].trainees[0].initial_weights:
                message = queue.pop(0)
                num_failed += 1
                assert num_failed < 40, "the next start is damaged alike"
                failed = make_failed(message, kind="checkpoint", reason="sha256 differs", key=key)
                world.handle(AssignmentFailed(learner=learner, failed=failed, damage="a byte"))
        world.step()
    mine = [row for row in world.state.tables.policies.values() if row.population == name]
    assert {row.state for row in mine} == {"quarantined"}
    assert num_failed == len(mine), "each was tried once"
    assert world.state.phase.failed
    assert "no active policy" in world.state.phase.reason
