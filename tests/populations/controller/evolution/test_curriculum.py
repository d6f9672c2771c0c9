"""Lessons of a run, in simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from arena.types import AssignmentId
from arena.wire.messages import Train
from populations.config.run_config import validate_config
from populations.controller.evolution.curriculum import LESSON_BEGAN, advance, measure
from populations.controller.state.events import Now
from populations.controller.state.goals import StopGoals, goal_reached
from populations.records.rows import AssignmentRow, EventRow
from tests.populations.controller.simulated import DUEL, World, duel_spec, make_world
from tests.populations.controller.state.test_goals import told

KWARGS: list[dict[str, object]] = [{"size": 3}, {"size": 6}, {"size": 9}]


def curriculum(*ends: dict[str, object]) -> list[dict[str, object]]:
    """Lessons with these ends, and one more."""
    lessons: list[dict[str, object]] = [
        {"until": end, "kwargs": kwargs} for end, kwargs in zip(ends, KWARGS, strict=False)
    ]
    return [*lessons, {"kwargs": KWARGS[len(ends)]}]


def make(*ends: dict[str, object], **sections: object) -> World:
    environment = {"id": "tests.duel:env", "num_envs": 8, "curriculum": curriculum(*ends)}
    document = {**DUEL, "environment": environment, **sections}
    config = validate_config(document)
    spec = replace(duel_spec(), kwargs=config.kwargs_of_matches, lessons=config.lessons)
    return make_world(document, spec)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_lesson_ends_when_every_policy_has_done_its_steps(deterministic: bool) -> None:
    sections: dict[str, object] = {"deterministic": deterministic, "stop": {"agent_steps": 24_000}}
    world = make({"agent_steps": 1000}, {"agent_steps": 3000}, **sections)
    world.join()
    world.join()
    began: list[dict[str, int]] = []
    while not world.over:
        lesson = world.state.tables.run.lesson
        world.step()
        for other in world.state.crew.learners.values():
            other.last_heard_s = world.now_s
        if world.state.tables.run.lesson != lesson:
            rows = world.state.tables.policies.values()
            began.append({row.policy: row.agent_steps for row in rows})
    first, second = world.events(LESSON_BEGAN)
    assert [event.subject for event in (first, second)] == ["2", "3"]
    assert [event.data["kwargs"] for event in (first, second)] == KWARGS[1:]
    assert first.data["reason"] == "every active policy has done 1000 agent steps"
    assert min(began[0].values()) >= 1000
    assert min(began[1].values()) >= 3000
    # The lesson never goes back, and later assignments are of the new lesson.
    lessons = [
        row.message.lesson
        for row in world.committed
        if isinstance(row, AssignmentRow)
        and row.status == "queued"
        and isinstance(row.message, Train)
    ]
    assert lessons == sorted(lessons)
    assert set(lessons) == {0, 1, 2}
    assert world.state.tables.run.lesson == 2


def test_one_policy_that_lags_keeps_all_in_the_lesson_unless_it_is_quarantined() -> None:
    world = make({"agent_steps": 1000})
    state = world.state
    now = Now(monotonic_s=1.0, utc="now")
    policies = list(state.tables.policies.values())
    tx = state.begin(now)
    for row in policies[1:]:
        tx.put(structs.replace(row, agent_steps=1000))
    tx.put(structs.replace(policies[0], agent_steps=999))
    advance(state.settings, state.indexes, state.phase, tx)
    assert state.tables.run.lesson == 0
    tx.put(structs.replace(policies[0], agent_steps=999, state="quarantined"))
    advance(state.settings, state.indexes, state.phase, tx)
    assert state.tables.run.lesson == 1
    # The last lesson has no end condition.
    advance(state.settings, state.indexes, state.phase, tx)
    assert state.tables.run.lesson == 1


def test_a_mean_return_is_that_of_the_present_lesson_and_generation() -> None:
    world = make({"return": 5.0}, {"return": 5.0}, stop={"success_rate": 0.9})
    state = world.state
    policies = list(state.tables.policies.values())
    high = {"episode/count": 100.0, "episode/return_mean": 6.0, "environment/success_mean": 1.0}
    (until, _) = (lesson.until for lesson in state.settings.config.environment.curriculum[:2])
    assert until is not None
    rows = [told(state, policy, high) for policy in policies]
    for row in rows:
        state.indexes.goals.add_assignment(row)
    assert measure(state.indexes, policies[0], until) == 6.0
    # Success in an easy lesson does not end the run.
    assert goal_reached(state.settings.config, state.tables, state.indexes.goals) is None
    tx = state.begin(Now(monotonic_s=1.0, utc="now"))
    advance(state.settings, state.indexes, state.phase, tx)
    assert state.tables.run.lesson == 1
    assert [row.data["values"] for row in tx.rows if isinstance(row, EventRow)] == [
        {policy.policy: 6.0 for policy in policies}
    ]
    # Results of the previous lesson do not count, even if they come late.
    assert measure(state.indexes, policies[0], until) is None
    late = told(state, policies[0], high)
    state.indexes.goals.add_assignment(late)
    assert measure(state.indexes, policies[0], until) is None
    message = late.message
    assert isinstance(message, Train)
    few = {**high, "episode/count": 99.0}
    mine = structs.replace(late, message=structs.replace(message, lesson=1), metrics=few)
    state.indexes.goals.add_assignment(mine)
    assert measure(state.indexes, policies[0], until) is None
    more = {**high, "episode/count": 1.0, "episode/return_mean": 106.0}
    other = structs.replace(mine, assignment_id=AssignmentId(2), metrics=more)
    state.indexes.goals.add_assignment(other)
    # (99 * 6 + 106) / 100 = 7
    assert measure(state.indexes, policies[0], until) == pytest.approx(7.0)
    # A resume folds the same rows again.
    folded = StopGoals.fold(None, tallies=(), assignments=[*rows, late, mine, other], origins={})
    assert folded.mean_return(policies[0], lesson=1) == pytest.approx(7.0)


@pytest.mark.slow
def test_a_rating_ends_a_lesson() -> None:
    world = make({"rating": 100.0}, stop={"agent_steps_per_policy": 20_000})
    world.join()
    world.join()
    world.run()
    (event,) = world.events(LESSON_BEGAN)
    values = event.data["values"]
    assert isinstance(values, dict)
    assert all(isinstance(value, float) and value >= 100.0 for value in values.values())
    assert len(values) == 4
