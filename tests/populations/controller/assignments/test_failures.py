"""Failures that are no learner's: how often, until whom they are held against."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arena.types import AssignmentId, PolicyId
from populations.controller.assignments.failures import (
    MAX_BROKEN,
    MAX_FAILURES,
    blame,
    blame_environment,
    clear_environment,
    fall_back,
    set_aside,
)
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import World, make_world

POLICY = PolicyId("player/p000")


def played() -> World:
    world = make_world()
    world.join()
    for _ in range(20):
        world.step()
    return world


def test_failures_count_up_to_a_quarantine() -> None:
    world = played()
    tx = transaction(world)
    for number in range(1, MAX_FAILURES):
        blame(world.state, tx, POLICY, reason="it broke")
        row = world.state.tables.policies[POLICY]
        assert (row.failures, row.state) == (number, "active")
    blame(world.state, tx, POLICY, reason="it broke")
    (event,) = (row for row in tx.rows if getattr(row, "kind", "") == "quarantined")
    assert event.data["reason"] == (  # type: ignore[union-attr]
        "3 assignments in a row failed on one checkpoint; the last: it broke"
    )


@pytest.mark.parametrize("is_cleared", [False, True])
def test_an_environment_that_breaks_six_times_in_a_row_fails_the_run(is_cleared: bool) -> None:
    world = played()
    row = next(iter(world.state.tables.assignments.values()))
    tx = transaction(world)
    for number in range(MAX_BROKEN):
        assert not world.state.failed
        if is_cleared and number == 3:
            clear_environment(world.state, row)
        blame_environment(world.state, tx, row, reason="step raised")
    assert world.state.failed != is_cleared
    assert row.assignment_id not in world.state.tables.assignments


def test_a_corrupt_checkpoint_is_used_by_nobody_and_its_policy_falls_back() -> None:
    world = played()
    policy = next(
        row
        for row in world.state.tables.policies.values()
        if sum(
            c.policy == row.policy and c.state == "present"
            for c in world.state.tables.checkpoints.values()
        )
        > 1
    )
    key = policy.checkpoint
    assert key is not None
    tx = transaction(world)
    set_aside(world.state, tx, key, reason="bytes do not match")
    after = world.state.tables.policies[policy.policy]
    assert world.state.tables.checkpoints[key].state == "corrupt"
    assert after.checkpoint not in (key, None)
    assert world.state.tables.checkpoints[str(after.checkpoint)].state == "present"
    num_rows = len(tx.rows)
    set_aside(world.state, tx, key, reason="bytes do not match")
    assert len(tx.rows) == num_rows, "told once"


def test_of_checkpoints_with_equal_steps_the_latest_is_fallen_back_to() -> None:
    world = played()
    tables = world.state.tables
    own = [row for row in tables.checkpoints.values() if row.policy == POLICY]
    last = max(own, key=lambda row: row.agent_steps)
    # As an immigrant's first one: no step of its own yet.
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
    world.state.stop(tx, reason="interrupted", interrupted=True)
    world.state.fail(tx, reason="the environment broke")
    world.state.fail(tx, reason="no policy is left")
    state = world.state
    assert (state.reason, state.failed, state.interrupted) == ("the environment broke", True, False)


def test_without_a_checkpoint_that_verifies_a_policy_is_quarantined() -> None:
    world = played()
    tx = transaction(world)
    for row in list(world.state.tables.checkpoints.values()):
        if row.policy == POLICY:
            tx.put(replace(row, state="corrupt"))
    fall_back(world.state, tx, world.state.tables.policies[POLICY])
    assert world.state.tables.policies[POLICY].state == "quarantined"
