"""Populations that learn one at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from arena.errors import ConfigError
from arena.wire.messages import Train
from populations.controller.assignments.turns import population_in_turn, steps_to_end
from populations.controller.state.events import Now
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import DUEL, DUET, TAG, duet_spec, make_world, tag_spec

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

    assert population_in_turn(state) == "predator"
    has_done("predator", 2000, 2500, 1999)
    assert population_in_turn(state) == "predator"
    has_done("predator", 2000, 2500, 2000)
    assert population_in_turn(state) == "prey"
    has_done("prey", 2000, 2000, 2000)
    assert population_in_turn(state) == "predator"
    has_done("predator", 6000, 6000, 6000)
    has_done("prey", 4100, 6000, 6000)
    assert population_in_turn(state) == "prey"
    rows = [row for row in state.tables.policies.values() if row.population == "prey"]
    assert steps_to_end(state, rows[0]) == 1900
    # 6000 agent steps are the limit: nobody but the last one trains any more.
    has_done("prey", 6000, 6000, 6000)
    assert population_in_turn(state) is None
    tx.put(replace(rows[0], agent_steps=10, state="quarantined"))
    assert population_in_turn(state) is None


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_turns_go_round_to_the_end_of_the_run(deterministic: bool) -> None:
    document = {**TURNING, "deterministic": deterministic}
    world = make_world(document, tag_spec())
    world.join()
    world.join()
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
    assert population_in_turn(world.state) is None
    (first, *_) = world.state.tables.policies.values()
    assert steps_to_end(world.state, first) is None


def test_turns_need_somebody_who_stands_still() -> None:
    with pytest.raises(ConfigError, match="must be null with one population or one side"):
        make_world({**DUEL, "matchmaking": TURNS})
    with pytest.raises(ConfigError, match=r"populations speaker, listener and 1 side$"):
        make_world({**DUET, "matchmaking": TURNS}, duet_spec())
