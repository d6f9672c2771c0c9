"""New start values at a resume are a generation of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from populations.controller.evolution.reconfigure import reconfigure, with_changed
from populations.records.rows import AssignmentRow, Json
from populations.search_space import Range
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import TAG, make_world, tag_spec


def test_values_that_were_not_changed_stay() -> None:
    old = {"learning_rate": 0.5, "gamma": 0.9, "target_kl": 0.1}
    assert with_changed(old, {"gamma": 0.8, "target_kl": None, "new": 1}, {}) == {
        "learning_rate": 0.5,
        "gamma": 0.8,
        "new": 1,
    }


@pytest.mark.slow
def test_policies_of_the_population_continue_with_them() -> None:
    world = make_world(TAG, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.steps(20)
    before = dict(world.state.tables.policies)
    tx = transaction(world)
    reconfigure(world.state, tx, "prey", {"clip_coef": 0.05}, {})
    ended = {row.assignment_id for row in tx.rows if isinstance(row, AssignmentRow)}
    assert ended.isdisjoint(world.state.tables.assignments)
    for policy, row in world.state.tables.policies.items():
        old = before[policy]
        if row.population == "predator":
            assert row == old
            continue
        assert row.hyperparameters == {**old.hyperparameters, "clip_coef": 0.05}
        assert (row.generation, row.agent_steps) == (old.generation + 1, old.agent_steps)
        assert row.checkpoint == old.checkpoint
    again = transaction(world)
    reconfigure(world.state, again, "prey", {"clip_coef": 0.05}, {})
    assert again.rows == [], "nothing is left to change"


def test_a_decision_that_waits_goes_on_waiting_with_the_new_values() -> None:
    world = make_world()
    policy = next(iter(world.state.tables.policies.values()))
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": {"clip_coef": 0.2},
        "decision": {},
    }
    tx = transaction(world)
    tx.put(replace(policy, pending=pending))
    reconfigure(world.state, tx, policy.population, {"clip_coef": 0.05}, {})
    after = world.state.tables.policies[policy.policy].pending
    assert after == {**pending, "hyperparameters": {"clip_coef": 0.05}}
    bounds = {"clip_coef": Range(low=0.1, high=0.3)}
    reconfigure(world.state, transaction(world), policy.population, {}, bounds)
    after = world.state.tables.policies[policy.policy].pending
    assert after == {**pending, "hyperparameters": {"clip_coef": 0.1}}
