"""Whose turn it is, and what PBT knows of whom: as if all rows were looked at each time."""

from __future__ import annotations

import pytest

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.controller.indexes.training_queue import TrainingQueue
from populations.records.rows import AssignmentRow, PolicyRow
from tests.populations.controller.simulated import DUEL, TAG, World, by_rate, make_world, tag_spec


def expected(world: World, *, population: str | None, of: str | None = None) -> PolicyRow | None:
    """The rule, over all policies; or over those of one population that have a checkpoint."""
    tables, limit = world.state.tables, world.state.settings.config.stop.agent_steps_per_policy
    leased = leases(world)
    starting = any(
        row.checkpoint is None and row.agent_steps == 0 and row.state == "active"
        for row in tables.policies.values()
    )
    due = [
        row
        for row in tables.policies.values()
        if row.state == "active"
        and row.policy not in leased
        and not row.pending
        and (row.checkpoint is None or not starting or of is not None)
        and (of is None or (row.population == of and row.checkpoint is not None))
        and (limit is None or row.agent_steps < limit)
        and (row.checkpoint is None or population in (None, row.population))
    ]
    return min(due, key=lambda row: (row.agent_steps, row.population, row.index), default=None)


def leases(world: World) -> set[PolicyId]:
    return {
        trainee.policy
        for row in world.state.tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }


@pytest.mark.parametrize("is_tag", [False, True])
@pytest.mark.slow
def test_the_next_policy_is_that_of_the_rule_after_every_event(is_tag: bool) -> None:
    world = make_world(TAG, tag_spec()) if is_tag else make_world({**DUEL, "learners": 3})
    world.learning = by_rate
    names = ["predator", "prey"] if is_tag else ["player"]
    for name in names:
        world.join(populations=(name,))
    limit = world.state.settings.config.stop.agent_steps_per_policy
    kept = TrainingQueue(world.state.tables, limit=limit)
    seen = set()
    for _ in range(60):
        before = len(world.committed)
        world.step()
        for row in world.committed[before:]:
            if isinstance(row, PolicyRow | AssignmentRow):
                kept.apply(row)
        for population in (*names, None):
            found = kept.next(
                held_up=set(),
                may_train=lambda name, wanted=population: wanted in (None, name),  # type: ignore[misc]
            )
            assert found == expected(world, population=population)
            seen.add(found and found.policy)
            if population is not None:
                after = kept.next_of(population, held_up=set())
                assert after == expected(world, population=population, of=population)
    assert len(seen) > 3
