"""Hyperparameters that follow agent steps: schedules of values, and a recorded lineage."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PolicyId, Value, trainee_entrant
from arena.wire.messages import Train, Trainee
from populations.audit.verify import check_evolution
from populations.choices import number_of
from populations.controller.evolution.quarantine import quarantine
from populations.controller.evolution.rewind import (
    hyperparameters_of,
    reconfigure,
    rewind,
    with_changed,
)
from populations.league.lineage import lineage, schedule_of
from populations.records.rows import AssignmentRow, EventRow, Json, PolicyRow
from populations.search_space import Range
from tests.populations.controller.eager import (
    EAGER,
    PBT,
    eager_world,
    pending_world,
    step_without_answers,
    transaction,
)
from tests.populations.controller.simulated import DUEL, TAG, World, fold, make_world, tag_spec


def schedule_in_use(world: World, policy: str) -> list[tuple[int, dict[str, Value]]]:
    """From when on a policy was trained with which hyperparameters, as its assignments say."""
    found: list[tuple[int, dict[str, Value]]] = []
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
            # Marks are multiples of 500, so budgets must be cut to reach them exactly.
            "assignment": {"agent_steps": 700},
            "deterministic": deterministic,
            "stop": {"agent_steps_per_policy": 8000},
        },
        joined=1,
    )
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


LINEAR = {"linear": [2.0e-3, 2.0e-4], "over_agent_steps": 5000}
SCHEDULED: dict[str, object] = {
    "populations": {
        "player": {
            "size": 4,
            "hyperparameters": {
                "learning_rate": LINEAR,
                "num_epochs": {"steps": {"0": 4, "1300": 2}},
            },
        }
    },
    "stop": {"agent_steps_per_policy": 8000},
}


def trained_with(world: World) -> list[Trainee]:
    """Trainees of all finished assignments."""
    return [
        trainee
        for row in world.committed
        if isinstance(row, AssignmentRow) and row.status == "finished" and row.agent_steps
        for trainee in (row.message.trainees if isinstance(row.message, Train) else ())
    ]


def check_values(world: World) -> set[float]:
    """Check that each assignment had the values of its policy's clock; return the factors."""
    tables, scheduled = fold(world.committed), world.state.settings.scheduled["player"]
    factors = set()
    for trainee in trained_with(world):
        entrant = trainee_entrant(trainee.policy, generation=trainee.generation)
        row = tables.generations[entrant]
        factor = row.factors["learning_rate"]
        # a + (b - a) t / N
        value = 2e-3 + (2e-4 - 2e-3) * min(trainee.agent_steps / 5000, 1.0)
        if factor != 1.0:
            value = min(max(value * factor, 1e-5), 3e-3)
        assert trainee.hyperparameters["learning_rate"] == pytest.approx(value, rel=1e-12)
        epochs = 4 if trainee.agent_steps < 1300 else 2
        assert trainee.hyperparameters["num_epochs"] == epochs
        assert row.factors["num_epochs"] == 1.0
        assert dict(trainee.hyperparameters) == scheduled.values(
            row.hyperparameters, factors=row.factors, agent_steps=trainee.agent_steps
        )
        factors.add(factor)
    assert list(check_evolution(tables)) == []
    return factors


@pytest.mark.slow
def test_values_follow_each_policys_own_clock_while_factors_are_copied_and_explored() -> None:
    world = eager_world(**SCHEDULED)
    world.run()
    assert len(check_values(world)) > 4
    assert 1300 in {trainee.agent_steps for trainee in trained_with(world)}
    copies = world.events("exploited")
    assert copies
    tables = fold(world.committed)
    for event in copies:
        numbers = event.data
        copied = tables.generations[
            trainee_entrant(
                PolicyId(str(numbers["donor"])), generation=int(str(numbers["donor_generation"]))
            )
        ]
        # The donor's factors apply at the copying policy's own agent steps.
        assert numbers["donor_hyperparameters"] == world.state.settings.scheduled["player"].values(
            copied.hyperparameters,
            factors=copied.factors,
            agent_steps=int(str(numbers["agent_steps"])),
        )
    reference = [row for row in world.committed if isinstance(row, PolicyRow) and row.index == 0]
    assert reference[0].factors == {"learning_rate": 1.0, "num_epochs": 1.0}


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_values_and_factors() -> None:
    world = pending_world("exploit", **SCHEDULED)
    world.kill()
    world.run()
    assert len(check_values(world)) > 4


@pytest.mark.slow
def test_a_replay_of_scheduled_values_gives_the_same_values() -> None:
    world = eager_world(**SCHEDULED)
    world.run()
    tables = fold(world.committed)
    policy = next(row.policy for row in tables.generations.values() if row.cause == "exploit")
    schedule = schedule_of(tables, policy, scheduled=world.state.settings.scheduled["player"])
    # The values are those that the weights were trained with: the donor's, then the policy's own.
    last = tables.policies[policy]
    entrant = trainee_entrant(policy, generation=last.generation)
    expected = [
        (begin + trainee.agent_steps - generation.agent_steps_begin,
         dict(trainee.hyperparameters))
        for generation, begin, steps in lineage(
            tables.generations, entrant, agent_steps=last.agent_steps
        )
        for trainee in trained_with(world)
        if (trainee.policy, trainee.generation)
        == (generation.policy, generation.generation)
        and trainee.agent_steps < generation.agent_steps_begin + steps
    ]  # fmt: skip
    in_use = {entry.agent_steps: dict(entry.hyperparameters) for entry in schedule}
    for agent_steps, values in expected:
        now = max(mark for mark in in_use if mark <= agent_steps)
        assert in_use[now] == values
    assert len(schedule) > 8
    document = [entry.model_dump(mode="json") for entry in schedule]
    player = {"size": 1, "schedule": document}
    replay = make_world({**EAGER, **SCHEDULED, "populations": {"player": player}}, joined=1)
    replay.run()
    assert schedule_in_use(replay, "player/p000") == [
        (entry.agent_steps, dict(entry.hyperparameters)) for entry in schedule
    ]


def test_half_a_learning_rate_is_half_a_factor() -> None:
    world = eager_world(**SCHEDULED, pbt={"exploit": "none"})
    for _ in range(6):
        step_without_answers(world)
    policy = PolicyId("player/p001")
    before = world.state.tables.policies[policy]
    assert before.checkpoint is not None
    tx = transaction(world)
    quarantine(world.state, tx, policy, reason="a test")
    after = world.state.tables.policies[policy]
    assert after.factors["learning_rate"] == before.factors["learning_rate"] / 2
    assert after.hyperparameters["learning_rate"] == pytest.approx(
        number_of(before.hyperparameters["learning_rate"]) / 2
    )


@pytest.mark.slow
def test_an_immigrant_has_the_values_of_the_clock_that_goes_on() -> None:
    immigrants = {**PBT, "reference": False, "immigration": {"probability": 1.0}}
    world = eager_world(**{**SCHEDULED, "pbt": immigrants})
    world.run()
    assert world.events("immigrated")
    check_values(world)


def test_a_rewound_policy_has_the_factors_of_then_and_the_values_of_its_own_clock() -> None:
    world = make_world({**EAGER, **SCHEDULED, "checkpoints": {"keep": None}}, joined=1)
    world.run()
    tables, scheduled = world.state.tables, world.state.settings.scheduled["player"]
    checkpoint, then = next(
        (row, then)
        for row in tables.checkpoints.values()
        if (then := tables.generations[trainee_entrant(row.policy, generation=row.generation)])
        and then.factors != tables.policies[row.policy].factors
    )
    clock = tables.policies[checkpoint.policy].agent_steps
    after = rewind(world.state.settings, world.state.fits, transaction(world), checkpoint)
    assert after.factors == then.factors
    assert after.hyperparameters == scheduled.values(
        then.hyperparameters, factors=then.factors, agent_steps=clock
    )
    assert list(check_evolution(tables)) == []


def test_a_schedule_that_a_resume_brings_begins_with_the_factor_one() -> None:
    world = make_world({**EAGER, **SCHEDULED, "stop": {"agent_steps_per_policy": 2000}}, joined=1)
    world.run()
    state = world.state
    # The rows are as in a run from before the hyperparameters had schedules.
    for row in list(state.tables.policies.values()):
        transaction(world).put(replace(row, factors={}))
    reconfigure(state, transaction(world), "player", {"learning_rate": 2.0e-3}, {})
    for row in state.tables.policies.values():
        assert row.factors == {"learning_rate": 1.0, "num_epochs": 1.0}
        assert row.hyperparameters["learning_rate"] == pytest.approx(
            2.0e-3 - row.agent_steps / 5000 * 1.8e-3
        )
        assert row.hyperparameters["num_epochs"] == 2


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


def test_values_that_were_not_changed_stay() -> None:
    old = {"learning_rate": 0.5, "gamma": 0.9, "target_kl": 0.1}
    assert with_changed(old, {"gamma": 0.8, "target_kl": None, "new": 1}, {}) == {
        "learning_rate": 0.5,
        "gamma": 0.8,
        "new": 1,
    }


@pytest.mark.slow
def test_policies_of_the_population_continue_with_them() -> None:
    world = make_world(TAG, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.steps(20)
    before = dict(world.state.tables.policies)
    tx = transaction(world)
    reconfigure(world.state, tx, "prey", {"clip_coef": 0.05}, {})
    ended = {row.assignment_id for row in tx.rows if isinstance(row, AssignmentRow)}
    assert ended.isdisjoint(world.state.tables.assignments)
    for policy, row in world.state.tables.policies.items():
        old = before[policy]
        if row.population == "predator":
            assert row == old
            continue
        assert row.hyperparameters == {**old.hyperparameters, "clip_coef": 0.05}
        assert (row.generation, row.agent_steps) == (old.generation + 1, old.agent_steps)
        assert row.checkpoint == old.checkpoint
    again = transaction(world)
    reconfigure(world.state, again, "prey", {"clip_coef": 0.05}, {})
    assert again.rows == [], "nothing is left to change"


def test_a_decision_that_waits_goes_on_waiting_with_the_new_values() -> None:
    world = make_world()
    policy = next(iter(world.state.tables.policies.values()))
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": {"clip_coef": 0.2},
        "decision": {},
    }
    tx = transaction(world)
    tx.put(replace(policy, pending=pending))
    reconfigure(world.state, tx, policy.population, {"clip_coef": 0.05}, {})
    after = world.state.tables.policies[policy.policy].pending
    assert after == {**pending, "hyperparameters": {"clip_coef": 0.05}}
    bounds = {"clip_coef": Range(low=0.1, high=0.3)}
    reconfigure(world.state, transaction(world), policy.population, {}, bounds)
    after = world.state.tables.policies[policy.policy].pending
    assert after == {**pending, "hyperparameters": {"clip_coef": 0.1}}
