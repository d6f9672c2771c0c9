"""Which limit ends a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from populations.controller.ending import limit_reached, lower_bound
from tests.populations.controller.simulated import DUEL, make_world


@pytest.mark.parametrize("rating", [-50.0, 0.0, 60.0])
def test_a_rating_ends_the_run_whatever_its_sign(rating: float) -> None:
    """A limit of 0 is one: the 21st of the fifty bugs."""
    stop = {"rating": rating, "agent_steps_per_policy": 10**9}
    world = make_world({**DUEL, "stop": stop})
    world.join()
    world.join()
    world.run()
    run, state = world.state.tables.run, world.state
    assert run.state == "finished"
    assert run.reason == (
        f"stop.rating: every population has a policy whose lower bound is {rating:g}"
    )
    bounds = [lower_bound(state, row) for row in state.tables.policies.values()]
    assert max(bound for bound in bounds if bound is not None) >= rating - 30.0


def test_nobody_is_rated_so_no_rating_is_reached() -> None:
    world = make_world({**DUEL, "stop": {"rating": -1000.0}})
    world.join()
    assert limit_reached(world.state, elapsed_s=1e6) is None


def test_policies_that_wait_for_a_donor_have_not_done_their_steps() -> None:
    """All are quarantined and will go on with copied weights: no limit holds meanwhile."""
    world = make_world({**DUEL, "stop": {"agent_steps_per_policy": 6000}})
    tables = world.state.tables
    for row in list(tables.policies.values()):
        waiting = replace(row, state="quarantined", pending={"kind": "exploit"}, agent_steps=500)
        tables.policies[row.policy] = waiting
    assert limit_reached(world.state, elapsed_s=1.0) is None
    for row in list(tables.policies.values()):
        tables.policies[row.policy] = replace(row, pending={})
    assert limit_reached(world.state, elapsed_s=1.0) is None
    for row in list(tables.policies.values()):
        tables.policies[row.policy] = replace(row, state="active", agent_steps=6000)
    assert "every active policy has done 6000" in str(limit_reached(world.state, elapsed_s=1.0))
