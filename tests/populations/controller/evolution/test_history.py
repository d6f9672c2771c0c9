"""What exploring is told of other generations, against its definition over all rows."""

from __future__ import annotations

import pytest

from arena.types import trainee_entrant
from populations.controller.evolution.generations import ended_generation, history
from populations.controller.evolution.members import members_of
from populations.controller.indexes.pbt_members import MemberIndex
from tests.populations.controller.simulated import DUEL, make_world

WITH_ROLES = {**DUEL, "populations": {"player": {"size": 6, "roles": {"main_exploiter": 2}}}}


@pytest.mark.parametrize("document", [DUEL, WITH_ROLES])
@pytest.mark.slow
def test_histories_and_members_are_those_that_all_rows_give(document: dict[str, object]) -> None:
    world = make_world(document, joined=1)
    for _ in range(150):
        world.step()
        tables = world.state.tables
        for policy in tables.policies.values():
            ended = ended_generation(world.state.fits, policy.policy)
            assert ended is not None
            assert ended.entrant == trainee_entrant(policy.policy, generation=policy.generation)
            assert history(world.state.settings.config, world.state.fits, policy) == tuple(
                ended if row.entrant == ended.entrant else row
                for row in tables.generations.values()
                if tables.policies[row.policy].role == policy.role
            )
        for role in ("main", "main_exploiter"):
            kept = members_of(world.state.settings.config, world.state.indexes, "player", role=role)
            changed, world.state.indexes.members = (
                world.state.indexes.members,
                MemberIndex(world.state.league),
            )
            assert kept == members_of(
                world.state.settings.config, world.state.indexes, "player", role=role
            )
            world.state.indexes.members = changed
    assert world.events("explored", "exploited")
