"""Which limit ends a run."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from arena.types import Entrant, population_of
from arena.wire.messages import Train
from populations.controller.phases import limit_reached
from populations.controller.state.events import AssignmentFailed
from populations.controller.state.fits import Fits
from populations.controller.state.goals import bound_at_any_time
from populations.records.rows import PolicyRow
from tests.populations.controller.simulated import DUEL, TAG, make_world, tag_spec
from tests.populations.rows import make_failed


def lower_bound(fits: Fits, policy: PolicyRow) -> float | None:
    """Lower end of the interval of a policy's rating, as standings show it."""
    digest = fits.league.standing_weights(policy)
    interval = fits.ratings(policy.population).interval(digest)
    return interval[1] if interval is not None else None


@pytest.mark.parametrize("rating", [-50.0, 0.0, 60.0])
def test_a_rating_ends_the_run_whatever_its_sign(rating: float) -> None:
    """A limit of 0 is one: the 21st of the fifty bugs."""
    stop = {"rating": rating, "agent_steps_per_policy": 10**9}
    world = make_world({**DUEL, "stop": stop}, joined=2)
    world.run()
    run, state = world.state.tables.run, world.state
    assert run.state == "finished"
    assert run.reason == (
        f"stop.rating: every population has a policy whose lower bound is {rating:g}"
    )
    bounds = [lower_bound(state.fits, row) for row in state.tables.policies.values()]
    assert max(bound for bound in bounds if bound is not None) >= rating - 30.0


def test_nobody_is_rated_so_no_rating_is_reached() -> None:
    world = make_world({**DUEL, "stop": {"rating": -1000.0}}, joined=1)
    assert limit_reached(world.state.settings.config, world.state.indexes, trained_s=1e6) is None


def test_policies_that_wait_for_a_donor_have_not_done_their_steps() -> None:
    """All are quarantined and will go on with copied weights: no limit holds meanwhile."""
    world = make_world({**DUEL, "stop": {"agent_steps_per_policy": 6000}})
    tables = world.state.tables
    for row in list(tables.policies.values()):
        waiting = replace(row, state="quarantined", pending={"kind": "exploit"}, agent_steps=500)
        tables.policies[row.policy] = waiting
    assert limit_reached(world.state.settings.config, world.state.indexes, trained_s=1.0) is None
    for row in list(tables.policies.values()):
        tables.policies[row.policy] = replace(row, pending={})
    assert limit_reached(world.state.settings.config, world.state.indexes, trained_s=1.0) is None
    for row in list(tables.policies.values()):
        tables.policies[row.policy] = replace(row, state="active", agent_steps=6000)
    assert "every active policy has done 6000" in str(
        limit_reached(world.state.settings.config, world.state.indexes, trained_s=1.0)
    )


def test_time_and_steps_of_all_are_limits() -> None:
    stop = {"duration_s": 60.0, "agent_steps": 900, "agent_steps_per_policy": 10**9}
    world = make_world({**DUEL, "stop": stop})
    assert limit_reached(world.state.settings.config, world.state.indexes, trained_s=59.9) is None
    assert str(
        limit_reached(world.state.settings.config, world.state.indexes, trained_s=60.0)
    ).startswith("stop.duration_s: ")
    world.join()
    world.run()
    run = world.state.tables.run
    assert (run.state, run.agent_steps >= 900) == ("finished", True)
    assert run.reason.startswith("stop.agent_steps: ")


def test_a_bound_at_any_time_by_hand() -> None:
    world = make_world(DUEL, joined=1)
    state, digest = world.state, None
    policy = next(iter(state.tables.policies.values()))
    while digest is None or not state.fits.ratings(policy.population).rating(digest):
        world.step()
        policy = next(iter(state.tables.policies.values()))
        digest = state.league.standing_weights(policy)
    row = state.tables.ratings[policy.population]
    place = row.entrants.index(Entrant(digest))
    known = replace(
        row,
        ratings=tuple(500.0 if i == place else 0.0 for i in range(len(row.entrants))),
        deviations=(40.0,) * len(row.entrants),
        child_deviation=200.0,
        anchor_errors=(),
        optimism=10.0,
        champion=None,
    )
    state.tables.ratings[policy.population] = known
    # u / v = (200 / 40)^2 = 25: z^2 = (1 + 1 / 25) (2 log 20 + log 26) = 9.62, where 1.96^2 = 3.84.
    bound = bound_at_any_time(state.fits, policy)
    assert bound == pytest.approx(500.0 - 10.0 - 40.0 * math.sqrt(1.04 * (5.991465 + 3.258097)))
    assert lower_bound(state.fits, policy) == pytest.approx(500.0 - 1.959964 * 40.0)
    # The champion's rating is already reduced by its optimism, which must count only once.
    state.tables.ratings[policy.population] = replace(known, champion=Entrant(digest))
    assert bound_at_any_time(state.fits, policy) == bound


def test_a_population_that_nobody_is_left_of_ends_the_run() -> None:
    """All of its policies failed before their first checkpoints: the other one has no opponent."""
    sides = {"predator": ["adversary_*"], "prey": ["agent_*"]}
    populations = {name: {"agents": agents, "size": 2} for name, agents in sides.items()}
    document = {**DUEL, "environment": TAG["environment"], "populations": populations}
    world = make_world(document, tag_spec(), joined=1)
    (learner,) = world.state.crew.learners
    lost: list[str] = []
    while len(lost) < 2:
        message = world.given[learner].pop(0)
        assert isinstance(message, Train)
        lost += [trainee.policy for trainee in message.trainees]
        failed = make_failed(
            message,
            kind="non_finite",
            reason="loss is not finite",
            policy=message.trainees[0].policy,
        )
        world.handle(AssignmentFailed(learner=learner, failed=failed))
    (population,) = {population_of(policy) for policy in lost}
    assert world.state.phase.name != "training"
    assert world.state.phase.reason == (
        f"{population} has no active policy, ghost or player: others have nobody to meet"
    )
