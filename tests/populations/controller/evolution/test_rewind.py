"""The rows of a rewind, in a league that has copied and explored."""

from __future__ import annotations

import pytest

from populations.audit.evolution_checks import check_evolution
from populations.controller.evolution.rewind import hyperparameters_of, rewind
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import DUEL, make_world


@pytest.mark.slow
def test_hyperparameters_are_those_of_the_generation_of_then() -> None:
    world = make_world({**DUEL, "checkpoints": {"keep": None}}, joined=1, steps=60)
    tables = world.state.tables
    checkpoint = next(
        row
        for row in tables.checkpoints.values()
        if 0 < row.generation < tables.policies[row.policy].generation
    )
    policy = tables.policies[checkpoint.policy]
    expected = dict(hyperparameters_of(tables, checkpoint)[0])
    assert expected != dict(policy.hyperparameters)
    after = rewind(world.state.settings, world.state.fits, transaction(world), checkpoint)
    assert after == tables.policies[policy.policy]
    assert (after.checkpoint, dict(after.hyperparameters)) == (checkpoint.key, expected)
    assert (after.agent_steps, after.generation) == (policy.agent_steps, policy.generation + 1)
    assert list(check_evolution(tables)) == []
    begun = tables.generations[next(reversed(tables.generations))]
    assert (begun.cause, begun.parent) == ("rewind", f"{policy.policy}#{checkpoint.generation}")
    assert begun.parent_agent_steps == checkpoint.agent_steps
