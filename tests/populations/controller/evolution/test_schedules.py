"""One policy that follows the recorded hyperparameters of a lineage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.audit.evolution_checks import check_evolution
from populations.league.lineage import schedule_of
from populations.records.rows import AssignmentRow, EventRow
from tests.populations.controller.eager import (
    EAGER,
    eager_world,
    transaction,
)
from tests.populations.controller.simulated import World, make_world
from tests.populations.controller.state.test_state import fold


def schedule_in_use(world: World, policy: str) -> list[tuple[int, dict[str, float]]]:
    """From when on a policy was trained with which hyperparameters, as its assignments say."""
    found: list[tuple[int, dict[str, float]]] = []
    for row in world.committed:
        if not (isinstance(row, AssignmentRow) and row.status == "finished" and row.agent_steps):
            continue
        assert isinstance(row.message, Train)
        (trainee,) = row.message.trainees
        if trainee.policy == policy and (
            not found or found[-1][1] != dict(trainee.hyperparameters)
        ):
            found.append((trainee.agent_steps, dict(trainee.hyperparameters)))
    return found


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.slow
def test_a_replay_trains_with_the_hyperparameters_of_the_lineage(deterministic: bool) -> None:
    world = eager_world(stop={"agent_steps_per_policy": 8000})
    world.run()
    tables = fold(world.committed)
    copied = [row for row in tables.generations.values() if row.cause == "exploit"]
    policy = copied[-1].policy
    schedule = schedule_of(tables, policy)
    assert len(schedule) >= 3
    replay = make_world(
        {
            **EAGER,
            "populations": {
                "player": {
                    "size": 1,
                    "schedule": [entry.model_dump(mode="json") for entry in schedule],
                }
            },
            # Marks lie at multiples of 500: the budget must be cut to meet them.
            "assignment": {"agent_steps": 700},
            "deterministic": deterministic,
            "stop": {"agent_steps_per_policy": 8000},
        }
    )
    replay.join()
    replay.run()
    expected = [(entry.agent_steps, dict(entry.hyperparameters)) for entry in schedule]
    assert schedule_in_use(replay, "player/p000") == expected
    rows = list(replay.state.tables.generations.values())
    assert [row.cause for row in rows] == ["start", *["replay"] * (len(schedule) - 1)]
    assert [(row.agent_steps_begin, dict(row.hyperparameters)) for row in rows] == expected
    events = replay.events("replayed")
    assert [event.data["mark"] for event in events] == [mark for mark, _ in expected[1:]]
    assert list(check_evolution(replay.state.tables)) == []
    again = schedule_of(replay.state.tables, "player/p000")
    assert again == schedule


def test_marks_that_were_passed_over_are_caught_up_with() -> None:
    entries = [
        {"agent_steps": steps, "hyperparameters": {"learning_rate": rate}}
        for steps, rate in ((0, 1e-3), (500, 2e-3), (600, 3e-3))
    ]
    world = make_world({**EAGER, "populations": {"player": {"size": 1, "schedule": entries}}})
    transaction(world).put(
        replace(world.state.tables.policies[PolicyId("player/p000")], agent_steps=750)
    )
    from populations.controller.evolution.pbt import evolve

    tx = transaction(world)
    evolve(world.state, tx, world.state.tables.policies[PolicyId("player/p000")])
    policy = world.state.tables.policies[PolicyId("player/p000")]
    assert (policy.generation, policy.hyperparameters["learning_rate"]) == (1, 3e-3)
    (event,) = (row for row in tx.rows if isinstance(row, EventRow))
    assert (event.data["mark"], event.data["num_skipped"]) == (600, 1)
