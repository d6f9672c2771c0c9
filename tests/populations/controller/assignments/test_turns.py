"""Populations that learn one at a time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.wire.messages import Train
from populations.controller.assignments.budgets import budget
from populations.controller.assignments.placement import population_in_turn
from populations.controller.state.events import Now
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    duet_spec,
    make_world,
    stranger,
    tag_spec,
)

TURNS: dict[str, object] = {"learning_side_turns": {"every_agent_steps": 2000}}
TURNING: dict[str, object] = {**TAG, "matchmaking": TURNS, "learners": 2}


def test_the_population_with_fewer_whole_turns_is_next_by_hand() -> None:
    world = make_world(TURNING, tag_spec())
    state = world.state
    tx = state.begin(Now(monotonic_s=1.0, utc="now"))

    def has_done(population: str, *steps: int) -> None:
        rows = [row for row in state.tables.policies.values() if row.population == population]
        for row, agent_steps in zip(rows, steps, strict=True):
            tx.put(replace(row, agent_steps=agent_steps))

    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 2000, 2500, 1999)
    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 2000, 2500, 2000)
    assert population_in_turn(state.settings, state.tables) == "prey"
    has_done("prey", 2000, 2000, 2000)
    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 6000, 6000, 6000)
    has_done("prey", 4100, 6000, 6000)
    assert population_in_turn(state.settings, state.tables) == "prey"
    rows = [row for row in state.tables.policies.values() if row.population == "prey"]
    # 6000 agent steps are the limit: nobody but the last one trains any more.
    has_done("prey", 6000, 6000, 6000)
    assert population_in_turn(state.settings, state.tables) is None
    tx.put(replace(rows[0], agent_steps=10, state="quarantined"))
    assert population_in_turn(state.settings, state.tables) is None


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_turns_go_round_to_the_end_of_the_run(deterministic: bool) -> None:
    document = {**TURNING, "deterministic": deterministic}
    world = make_world(document, tag_spec(), joined=2)
    world.run()
    trained = [
        row.message.trainees[0].policy.split("/")[0]
        for row in world.committed
        if isinstance(row, AssignmentRow) and row.status == "queued"
        if isinstance(row.message, Train) and row.message.agent_steps
    ]
    changes = [trained[0], *(b for a, b in pairwise(trained) if a != b)]
    # Three turns of 2000 each, of two populations.
    assert changes == ["predator", "prey"] * 3
    assert {row.agent_steps for row in world.state.tables.policies.values()} == {6000}


def test_without_turns_all_may_learn() -> None:
    world = make_world(TAG, tag_spec())
    assert population_in_turn(world.state.settings, world.state.tables) is None


@pytest.mark.parametrize(("section", "expected"), [(TURNS, 1900), ({}, 5000)])
def test_a_budget_ends_with_the_turn(section: dict[str, object], expected: int) -> None:
    far: dict[str, object] = {
        **TAG,
        "matchmaking": section,
        "ghosts": {"every_agent_steps": 10**9},
        "pbt": {"exploit": "none", "ready_agent_steps": 10**9, "warm_up_agent_steps": 10**9},
        "assignment": {"agent_steps": 5000},
        "stop": {"agent_steps_per_policy": 10**9},
    }
    world = make_world(far, tag_spec())
    tx = world.state.begin(Now(monotonic_s=1.0, utc="now"))
    (first, *_) = world.state.tables.policies.values()
    row = replace(first, agent_steps=4100, ghost_at=0)
    tx.put(row)
    assert budget(world.state, tx, row, learner=stranger(world)) == expected


def test_turns_need_somebody_who_stands_still() -> None:
    with pytest.raises(ConfigError, match="must be null with one population or one side"):
        make_world({**DUEL, "matchmaking": TURNS})
    with pytest.raises(ConfigError, match=r"populations speaker, listener and 1 side$"):
        make_world({**DUET, "matchmaking": TURNS}, duet_spec())
