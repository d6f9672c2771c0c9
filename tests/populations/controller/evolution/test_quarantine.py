"""A policy's life: each edge of the diagram in `populations.controller.evolution.pbt`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.choices import number_of
from populations.controller.assignments.failures import set_aside
from populations.controller.evolution.quarantine import (
    MAX_RESCUES,
    donors_of,
    quarantine,
    rescue_waiting,
)
from populations.controller.evolution.resets import try_immigrate
from populations.controller.indexes.teams import team_of
from populations.records.rows import AssignmentRow, PolicyRow
from tests.populations.controller.eager import (
    EAGER,
    eager_world,
    pending_world,
    run_until_pending,
    step_without_answers,
    transaction,
)
from tests.populations.controller.simulated import World, make_world


def stage(world: World, policy: PolicyId) -> str:
    """Return where in its life a policy is, as the diagram names it."""
    row = world.state.tables.policies[policy]
    if row.state == "quarantined":
        return "pending" if row.pending else "quarantined"
    if row.pending:
        return "pending"
    is_leased = any(
        isinstance(open_row.message, Train)
        and any(trainee.policy == policy for trainee in open_row.message.trainees)
        for open_row in world.state.tables.assignments.values()
    )
    if row.checkpoint is None:
        return "starting"
    return "training" if is_leased else "free"


def free_policy(world: World) -> PolicyId:
    """Go on until a policy that has trained is free."""
    for _ in range(100):
        step_without_answers(world)
        world.explore()
        for name in world.state.tables.policies:
            if stage(world, name) == "free" and world.state.tables.policies[name].agent_steps:
                return name
    raise AssertionError("every policy is leased all the time")


def test_a_policy_starts_is_leased_and_is_free_again() -> None:
    world = eager_world()
    name = next(iter(world.state.tables.policies))
    seen = [stage(world, name)]
    for _ in range(60):
        step_without_answers(world)
        world.explore()
        if stage(world, name) != seen[-1]:
            seen.append(stage(world, name))
    assert seen[0] == "starting"
    assert {("free", "training"), ("training", "free")} <= set(pairwise(seen))
    assert "starting" not in seen[1:]


@pytest.mark.parametrize("kind", ["exploit", "explore"])
def test_a_decision_waits_and_then_begins_a_generation(kind: str) -> None:
    world = pending_world(kind)
    policy = run_until_pending(world, kind)
    assert stage(world, policy.policy) == "pending"
    world.explore()
    assert stage(world, policy.policy) in ("free", "training")
    after = world.state.tables.policies[policy.policy]
    assert after.generation == policy.generation + 1


def test_a_decision_whose_donor_is_gone_is_given_up() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    set_aside(world.state, transaction(world), str(policy.pending["checkpoint"]), reason="bits")
    world.explore()
    after = world.state.tables.policies[policy.policy]
    assert after == replace(policy, pending={})
    assert stage(world, policy.policy) != "pending"


def quarantined_world() -> tuple[World, PolicyRow]:
    """A world in which PBT copies, and a policy that was quarantined and waits for a donor."""
    world = pending_world("explore")
    world.explore()
    name = free_policy(world)
    before = world.state.tables.policies[name]
    tx = transaction(world)
    quarantine(world.state, tx, name, reason="not finite")
    world.committed.extend(tx.rows)
    return world, before


def test_its_open_assignments_end_and_late_results_of_them_change_nothing() -> None:
    world = eager_world()
    free_policy(world)
    name = next(name for name in world.state.tables.policies if stage(world, name) == "training")
    ended = {
        row.assignment_id
        for row in world.state.tables.assignments.values()
        if isinstance(row.message, Train)
        and any(trainee.policy == name for trainee in row.message.trainees)
    }
    quarantine(world.state, transaction(world), name, reason="NaN")
    for _ in range(30):
        # The assignments are cancelled, and the learner that holds one answers too late.
        assert not ended & world.state.tables.assignments.keys()
        step_without_answers(world)
    rows = [row for row in world.committed if isinstance(row, AssignmentRow)]
    finished = {row.assignment_id for row in rows if row.status == "finished"}
    assert finished
    assert not ended & finished


def test_a_quarantined_policy_waits_until_its_donor_has_finished_since_and_is_active_again() -> (
    None
):
    world, before = quarantined_world()
    row = world.state.tables.policies[before.policy]
    assert (row.state, row.pending) == ("quarantined", {})
    done = {name: policy.agent_steps for name, policy in world.state.tables.policies.items()}
    while not world.state.tables.policies[before.policy].pending:
        step_without_answers(world)
    row = world.state.tables.policies[before.policy]
    assert (row.state, row.pending["kind"]) == ("quarantined", "exploit")
    donor = world.state.tables.policies[PolicyId(str(row.pending["donor"]))]
    assert donor.policy != row.policy
    assert donor.agent_steps > done[donor.policy], "it has trained since"
    world.explore()
    after = world.state.tables.policies[row.policy]
    assert (after.state, after.pending, after.parent) == ("active", {}, donor.policy)
    assert (after.generation, after.rescues) == (before.generation + 1, 1)


def test_a_better_donor_that_trains_no_more_is_not_waited_for() -> None:
    world, before = quarantined_world()
    state, tx = world.state, transaction(world)
    *_, (_, second), _ = sorted(
        donors_of(state.settings.config, state.fits, state.blame.ledger, before)
    )
    state.blame.ledger.finished[second] = state.blame.ledger.num_outcomes + 1
    rescue_waiting(state, tx)
    assert state.tables.policies[before.policy].pending["donor"] == second


def test_in_the_final_matches_nobody_comes_back() -> None:
    world, before = quarantined_world()
    state, tx = world.state, transaction(world)
    state.blame.ledger.finished[
        max(donors_of(state.settings.config, state.fits, state.blame.ledger, before))[1]
    ] = state.blame.ledger.num_outcomes + 1
    state.phase.name = "evaluating"
    rescue_waiting(state, tx)
    assert stage(world, before.policy) == "quarantined"
    assert not tx.rows
    state.phase.name = "training"
    rescue_waiting(state, tx)
    assert stage(world, before.policy) == "pending"


def test_rescues_have_a_bound_that_a_decision_of_pbt_sets_back() -> None:
    world, before = quarantined_world()
    tx = transaction(world)
    tx.put(replace(world.state.tables.policies[before.policy], rescues=MAX_RESCUES))
    for _ in range(20):
        step_without_answers(world)
        world.explore()
    assert stage(world, before.policy) == "quarantined"
    decided = [row for row in world.state.tables.policies.values() if row.ready_at]
    assert {row.rescues for row in decided if row.policy != before.policy} == {0}


def test_without_a_donor_it_goes_on_once_with_half_the_rate_then_stays_out() -> None:
    world = make_world({**EAGER, "pbt": {"exploit": "none"}}, joined=1)
    name = free_policy(world)
    before = world.state.tables.policies[name]
    quarantine(world.state, transaction(world), name, reason="not finite")
    halved = world.state.tables.policies[name]
    assert (halved.state, halved.rescues) == ("active", 1)
    rate = number_of(before.hyperparameters["learning_rate"])
    assert halved.hyperparameters["learning_rate"] == pytest.approx(rate / 2)
    assert halved.generation == before.generation + 1
    quarantine(world.state, transaction(world), name, reason="not finite again")
    assert stage(world, name) == "quarantined"
    for _ in range(5):
        step_without_answers(world)
    assert stage(world, name) == "quarantined"


def test_an_immigrant_starts_again_with_its_counters() -> None:
    world = make_world({**EAGER, "pbt": {**EAGER["pbt"], "immigration": {"probability": 1.0}}})  # type: ignore[dict-item]
    world.join()
    name = free_policy(world)
    before = world.state.tables.policies[name]
    tx = transaction(world)
    is_done = try_immigrate(
        world.state, tx, team_of(world.state.league, before), data={"reason": "to be replaced"}
    )
    assert is_done
    after = world.state.tables.policies[name]
    assert stage(world, name) == "starting"
    assert (after.agent_steps, after.generation) == (before.agent_steps, before.generation + 1)
    assert before.agent_steps > 0
