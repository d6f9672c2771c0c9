"""Budgets, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.assignments.jobs import (
    MAX_DOUBLINGS,
    UNBOUNDED_AGENT_STEPS,
    budget,
    team_budget,
)
from populations.controller.indexes.teams import team_of
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    World,
    duet_spec,
    make_world,
    stranger,
)

POLICY = PolicyId("player/p000")
FAR: dict[str, object] = {
    **DUEL,
    "ghosts": {"every_agent_steps": 10**9},
    "pbt": {"exploit": "none", "ready_agent_steps": 10**9, "warm_up_agent_steps": 10**9},
    "assignment": {"target_s": 3.0},
    "stop": {"agent_steps_per_policy": 10**9},
}
"""No mark is near."""


def asked(world: World, *, speeds: Mapping[str, float] | None = None, **changes: object) -> int:
    """Return a learner's budget for a policy that is at its first ghost, with some changes."""
    tx = transaction(world)
    row = replace(world.state.tables.policies[POLICY], ghost_at=0, **changes)
    tx.put(row)
    return budget(world.state, tx, row, learner=stranger(world, speeds=speeds))


def test_a_policy_has_what_it_does_in_the_target_time() -> None:
    assert asked(make_world(FAR), speed=200.0) == 600


def test_a_slow_learner_has_less_in_proportion_and_a_fresh_one_what_is_known_of_the_policy() -> (
    None
):
    world = make_world(FAR)
    slow, other = {"player": 40.0}, {"others": 1.0}
    assert asked(world, speeds=slow, speed=200.0) == 120
    assert asked(world, speeds={"player": 200.0}, speed=40.0) == 600
    for unknown in ({}, other):
        assert asked(world, speeds=unknown, speed=200.0) == 600


def test_a_deterministic_run_has_fixed_budgets_on_any_learner() -> None:
    world = make_world({**FAR, "deterministic": True})
    expected = world.state.settings.config.assignment.agent_steps
    assert {asked(world, speeds={"player": speed}) for speed in (1.0, 1e9)} == {expected}


def test_without_a_speed_of_its_own_it_has_the_mean_of_its_population() -> None:
    world = make_world(FAR)
    tx = transaction(world)
    for name, speed in (("player/p001", 100.0), ("player/p002", 300.0)):
        tx.put(replace(world.state.tables.policies[PolicyId(name)], speed=speed))
    assert asked(world) == 600
    assert asked(make_world(FAR)) == 1, "the learner does a whole rollout anyway"


@pytest.mark.parametrize(
    ("document", "agent_steps", "expected"),
    [
        ({"ghosts": {"every_agent_steps": 500}}, 100, 400),  # the next ghost is at 500
        ({"pbt": {"ready_agent_steps": 300, "warm_up_agent_steps": 250}}, 100, 200),
        ({"pbt": {"ready_agent_steps": 300, "warm_up_agent_steps": 450}}, 100, 350),
        ({"stop": {"agent_steps_per_policy": 350}}, 100, 250),
        ({"stop": {"agent_steps_per_policy": None, "agent_steps": 80}}, 0, 80),
    ],
)
def test_it_ends_at_the_next_mark(
    document: dict[str, object], agent_steps: int, expected: int
) -> None:
    assert asked(make_world({**FAR, **document}), speed=1e6, agent_steps=agent_steps) == expected


def test_it_doubles_while_no_episode_ends_and_passes_marks_then() -> None:
    world = make_world({**FAR, "ghosts": {"every_agent_steps": 500}})
    for doublings, expected in ((0, 500), (1, 1200), (3, 4800)):
        world.state.blame.doublings[POLICY] = doublings
        assert asked(world, speed=200.0) == expected
    world.state.blame.doublings[POLICY] = MAX_DOUBLINGS + 5
    assert asked(world, speed=200.0) == 600 << MAX_DOUBLINGS
    # A budget never exceeds the end of the policy's training or of the run.
    for stop, expected in (
        ({"agent_steps_per_policy": 900}, 800),
        ({"agent_steps_per_policy": None, "agent_steps": 1000}, 1000),
    ):
        near = make_world({**FAR, "stop": stop})
        near.state.blame.doublings[POLICY] = 3
        assert asked(near, speed=200.0, agent_steps=100) == expected


def test_the_run_s_clock_bounds_it() -> None:
    world = make_world({**FAR, "stop": {"duration_s": 10.0}})
    world.now_s = world.state.phase.started_s + 9.0
    assert asked(world, speed=200.0) == 200


def test_a_fixed_budget_and_a_deterministic_one() -> None:
    fixed = {**FAR, "assignment": {"agent_steps": 123}}
    assert asked(make_world(fixed), speed=1e9) == 123
    world = make_world({**FAR, "deterministic": True})
    assert asked(world, speed=1e9) == world.state.settings.config.assignment.agent_steps
    episodes = {**FAR, "deterministic": True, "assignment": {"episodes": 2}}
    assert asked(make_world(episodes), speed=1e9) == UNBOUNDED_AGENT_STEPS


def test_a_team_s_budget_passes_nobody_s_own() -> None:
    document = {**FAR, **{key: DUET[key] for key in ("environment", "populations")}}
    world = make_world({**document, "assignment": {"agent_steps": 300}}, duet_spec())
    leader = next(iter(world.state.tables.policies.values()))
    # For one speaker and two listeners 300 of the speaker's steps are 900 in total, 300 of the
    # listeners' are 450.
    team = team_of(world.state.league, leader)
    learner = stranger(world)
    assert team_budget(world.state, transaction(world), team, learner=learner) == 450


def test_whole_episodes_end_an_assignment_and_not_the_clock() -> None:
    assert asked(make_world({**FAR, "assignment": {"episodes": 5}}), speed=200.0) == 10**9
    bounded = {**FAR, "assignment": {"episodes": 5}, "stop": {"agent_steps_per_policy": 350}}
    assert asked(make_world(bounded), speed=200.0, agent_steps=100) == 250
