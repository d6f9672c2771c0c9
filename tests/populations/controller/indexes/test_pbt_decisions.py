"""Counts of decisions, by the events that tell of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.indexes.pbt_decisions import PbtDecisions
from populations.pbt.scheduler import num_marks
from populations.pbt.settings import PbtConfig
from populations.records.rows import EventRow, Json
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import make_world

ANN, BOB = "player/p000", "player/p001"


def event(kind: str, subject: str, **data: Json) -> EventRow:
    return EventRow(sequence=1, time="", kind=kind, subject=subject, data=data)


def test_a_decision_that_waits_is_due_and_not_made() -> None:
    world = make_world()
    tx = transaction(world)
    pbt = {"player": PbtConfig(ready_agent_steps=100, warm_up_agent_steps=100)}
    tx.put(replace(world.state.tables.policies[PolicyId(ANN)], agent_steps=250))
    decisions = PbtDecisions.from_events([event("decision_postponed", ANN, reason="unrated")])
    assert decisions.waiting == {ANN: "unrated"}
    assert (decisions.made, decisions.due(world.state.tables, pbt=pbt)) == (0, 2)
    assert decisions.document(world.state.tables, pbt=pbt) == {
        "due": 2,
        "made": 0,
        "waiting": {ANN: "unrated"},
    }


@pytest.mark.parametrize(
    ("kind", "is_made"),
    [("exploited", 1), ("explored", 1), ("immigrated", 1), ("kept", 1), ("exploit_failed", 0)],
)
def test_an_answer_ends_the_wait_and_has_its_marks(kind: str, is_made: int) -> None:
    decisions = PbtDecisions.from_events(
        [
            event("decision_postponed", ANN, reason="unrated"),
            event("decision_postponed", ANN, reason="too few matches"),
            event(kind, ANN, marks=3),
        ]
    )
    assert (decisions.made, decisions.waiting) == (is_made, {})
    assert decisions.due(make_world().state.tables, pbt={}) == 3


def test_decisions_that_no_clock_asked_for_do_not_count() -> None:
    decisions = PbtDecisions.from_events(
        [event("decision_postponed", BOB, reason="unrated"), event("exploited", BOB, marks=None)]
    )
    assert (decisions.made, decisions.waiting) == (0, {BOB: "unrated"})


def test_marks_since_the_last_decision() -> None:
    policy = make_world().state.tables.policies[PolicyId(ANN)]
    pbt = PbtConfig(ready_agent_steps=100, warm_up_agent_steps=250)
    marks = [num_marks(replace(policy, agent_steps=steps), pbt) for steps in (0, 249, 250, 700)]
    assert marks[:2] == [0, 0]
    assert marks[2] >= 1
    assert marks == sorted(marks)
