"""Changes that PBT has decided, row by row: what they replace, and what stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PolicyId, trainee_entrant
from populations.controller.evolution.changes import commit, decision_of, exploit, explore_own
from populations.controller.evolution.exploring import waiting
from populations.controller.indexes.teams import team_of
from populations.controller.state.transaction import Transaction
from populations.core import Exploration
from populations.records.rows import EventRow, GenerationRow, Json, PolicyRow
from tests.populations.controller.eager import (
    EAGER,
    PBT,
    pending_world,
    run_until_pending,
    transaction,
)
from tests.populations.controller.simulated import DUET, World, duet_spec, make_world

FIRST, SECOND = PolicyId("player/p000"), PolicyId("player/p001")


def trained(document: dict[str, object] | None = None) -> tuple[World, PolicyRow, PolicyRow]:
    """A world, a policy that has trained and is behind, and its donor, with other values."""
    world = make_world(document, joined=1, steps=8)
    tables = world.state.tables
    policy, donor = tables.policies[FIRST], tables.policies[SECOND]
    assert policy.checkpoint is not None
    assert donor.checkpoint is not None
    policy = replace(policy, state="quarantined", ready_at=0)
    values = {**donor.hyperparameters, "learning_rate": 0.125}
    donor = replace(donor, hyperparameters=values, generation=4, agent_steps=donor.agent_steps + 7)
    tx = transaction(world)
    tx.put(policy)
    tx.put(donor)
    return world, policy, donor


def only_event(tx: Transaction) -> EventRow:
    (event,) = (row for row in tx.rows if isinstance(row, EventRow))
    return event


def copied(policy: PolicyRow, donor: PolicyRow) -> PolicyRow:
    """A policy on its donor's checkpoint; its own are its name, its counters and its place."""
    return replace(
        policy,
        state="active",
        checkpoint=donor.checkpoint,
        parent=donor.policy,
        hyperparameters=donor.hyperparameters,
        ready_at=policy.agent_steps,
        generation=policy.generation + 1,
        generation_at=policy.agent_steps,
        pending={},
    )


def test_a_copy_without_exploring_is_made_at_once() -> None:
    world, policy, donor = trained()
    tables, tx = world.state.tables, transaction(world)
    before = tables.run
    # The copy has this key itself, and its own value counts.
    data = {"gap": 12.5, "generation": 99}
    exploit(world.state, tx, [policy], donor.policy, explore=False, data=data)
    assert tables.policies[FIRST] == copied(policy, donor)
    assert tables.policies[SECOND] == donor
    assert tables.run == replace(before, exploits=before.exploits + 1)
    assert waiting(world.state.tables, set()) == []
    entrant = trainee_entrant(FIRST, generation=policy.generation + 1)
    began = tables.generations[entrant]
    assert (began.cause, began.parent) == ("exploit", f"{SECOND}#4")
    assert (began.agent_steps_begin, began.parent_agent_steps) == (
        policy.agent_steps, donor.agent_steps,
    )  # fmt: skip
    ended = tables.generations[trainee_entrant(FIRST, generation=policy.generation)]
    assert ended.agent_steps_end == policy.agent_steps
    event = only_event(tx)
    assert (event.kind, event.subject) == ("exploited", FIRST)
    assert donor.checkpoint is not None
    assert event.data == {
        "gap": 12.5,
        "donor": SECOND,
        "donor_generation": 4,
        "donor_agent_steps": donor.agent_steps,
        "checkpoint": donor.checkpoint,
        "weights": tables.checkpoints[donor.checkpoint].weights_digest,
        "generation": policy.generation + 1,
        "agent_steps": policy.agent_steps,
        "old": dict(policy.hyperparameters),
        "donor_hyperparameters": dict(donor.hyperparameters),
        "new": dict(donor.hyperparameters),
        "moves": {},
    }


def test_a_copy_that_explores_waits_and_is_made_as_it_was_decided() -> None:
    world, policy, donor = trained()
    state = world.state
    decisions = state.tables.run.decisions
    tx = transaction(world)
    exploit(state, tx, [policy], donor.policy, explore=True, data={"gap": 12.5})
    pending: dict[str, Json] = {
        "kind": "exploit",
        "donor": SECOND,
        "donor_generation": 4,
        "donor_agent_steps": donor.agent_steps,
        "checkpoint": donor.checkpoint,
        "hyperparameters": dict(donor.hyperparameters),
        "decision": {"gap": 12.5, "donor": SECOND},
        "seed": [state.settings.config.seed, 0, decisions],
    }
    assert state.tables.policies[FIRST] == replace(policy, pending=pending)
    assert [row.policy for row in waiting(state.tables, set())] == [FIRST]
    assert state.tables.run.decisions == decisions + 1
    assert not any(isinstance(row, EventRow | GenerationRow) for row in tx.rows)
    # The donor continues meanwhile; the policy gets the decided and explored values.
    transaction(world).put(replace(donor, generation=5, checkpoint=None, hyperparameters={}))
    old = dict(donor.hyperparameters)
    new = {**old, "learning_rate": 0.25}
    found = Exploration(old=old, new=new, moves={"learning_rate": "perturbed"})
    tx = transaction(world)
    decided = state.tables.policies[FIRST]
    commit(state.settings.scheduled, state.fits, tx, decided, found)
    assert state.tables.policies[FIRST] == replace(copied(policy, donor), hyperparameters=new)
    event = only_event(tx)
    assert (event.data["old"], event.data["new"]) == (dict(policy.hyperparameters), new)
    assert event.data["donor_hyperparameters"] == old
    assert (event.data["donor_generation"], event.data["gap"]) == (4, 12.5)
    assert event.data["moves"] == {"learning_rate": "perturbed"}


def test_a_population_that_never_explores_does_not_wait() -> None:
    world, policy, donor = trained({**EAGER, "pbt": {**PBT, "explore": "none"}})
    exploit(world.state, transaction(world), [policy], donor.policy, explore=True, data={})
    assert world.state.tables.policies[FIRST] == copied(policy, donor)


def test_each_of_a_team_copies_the_one_that_plays_its_part() -> None:
    world = make_world(DUET, duet_spec(), joined=1, steps=8)
    state = world.state
    first, second = (
        team_of(state.league, state.tables.policies[PolicyId(f"listener/p00{index}")])
        for index in range(2)
    )
    assert all(row.checkpoint for row in (*first, *second))
    tx = transaction(world)
    # Any member of the donor's team may be named.
    exploit(state, tx, first, second[-1].policy, explore=False, data={})
    after = [state.tables.policies[row.policy] for row in first]
    assert after == [copied(row, donor) for row, donor in zip(first, second, strict=True)]
    events = [row for row in tx.rows if isinstance(row, EventRow)]
    assert [event.data["donor"] for event in events] == [row.policy for row in second]


def test_a_policys_own_values_change_and_its_weights_stay() -> None:
    world, policy, _ = trained()
    state = world.state
    decisions = state.tables.run.decisions
    explore_own(transaction(world), policy, data={"rank": 1})
    old = dict(policy.hyperparameters)
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": old,
        "decision": {"rank": 1},
        "seed": [state.settings.config.seed, 0, decisions],
    }
    decided = state.tables.policies[FIRST]
    assert decided == replace(policy, pending=pending)
    assert [row.policy for row in waiting(state.tables, set())] == [FIRST]
    new = {**old, "learning_rate": 0.5}
    tx = transaction(world)
    found = Exploration(old=old, new=new, moves={"learning_rate": "resampled"})
    commit(state.settings.scheduled, state.fits, tx, decided, found)
    assert state.tables.policies[FIRST] == replace(
        policy,
        hyperparameters=new,
        generation=policy.generation + 1,
        generation_at=policy.agent_steps,
        pending={},
    )
    began = state.tables.generations[trainee_entrant(FIRST, generation=policy.generation + 1)]
    assert (began.cause, began.parent) == ("explore", f"{FIRST}#{policy.generation}")
    event = only_event(tx)
    assert (event.kind, event.subject) == ("explored", FIRST)
    assert event.data == {
        "rank": 1,
        "generation": policy.generation + 1,
        "agent_steps": policy.agent_steps,
        "old": old,
        "new": new,
        "moves": {"learning_rate": "resampled"},
    }
    assert state.tables.run.exploits == 0


def test_the_numbers_of_a_decision_are_a_copy() -> None:
    decision = {"gap": 1.0}
    found = decision_of({"decision": decision})
    found["gap"] = 2.0
    assert decision == {"gap": 1.0}
    with pytest.raises(AssertionError, match="a decision's numbers are a mapping, got 7"):
        decision_of({"decision": 7})


def test_a_donor_that_is_quarantined_meanwhile_still_gives_what_was_decided() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    donor = world.state.tables.policies[PolicyId(str(policy.pending["donor"]))]
    transaction(world).put(replace(donor, state="quarantined"))
    world.explore()
    after = world.state.tables.policies[policy.policy]
    assert (after.state, after.checkpoint) == ("active", policy.pending["checkpoint"])
    assert after.parent == donor.policy
