"""Members as PBT sees them: kept between decisions, as if made anew for each."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.indexes.pbt_members import KeptMembers, MemberIndex
from populations.core import Member
from populations.league.ratings import Ratings
from tests.populations.controller.simulated import DUEL, make_world

WITH_ROLES = {**DUEL, "populations": {"player": {"size": 4, "roles": {"main_exploiter": 1}}}}


def test_members_are_listed_by_role_in_the_order_of_the_tables() -> None:
    tables = make_world(WITH_ROLES).state.tables
    kept = KeptMembers(Ratings(None))
    for row in reversed(tables.policies.values()):
        member = Member(
            policy=row.policy, index=row.index, rating=None, num_matches=0, is_reference=False
        )
        kept.set(row.policy, member)
    mains = [row.policy for row in tables.policies.values() if row.role == "main"]
    assert [member.policy for member in kept.listed("main", tables)] == mains
    assert len(kept.listed("main_exploiter", tables)) == 1
    kept.set(mains[0], None)
    assert [member.policy for member in kept.listed("main", tables)] == mains[1:]


def test_only_what_changed_is_looked_at_again() -> None:
    world = make_world()
    tables, league = world.state.tables, world.state.league
    index, ratings = MemberIndex(league), Ratings(None)

    def looked_at() -> set[PolicyId]:
        return set(index.current("player", ratings=ratings)[1])

    assert looked_at() == set(tables.policies)
    assert looked_at() == set()
    row = tables.policies[PolicyId("player/p001")]
    index.apply(replace(row, agent_steps=1))
    index.apply(replace(row, agent_steps=2))
    assert looked_at() == {row.policy}
    assert looked_at() == set()
    ratings = Ratings(None)  # a new fit changes all members
    assert looked_at() == set(tables.policies)
