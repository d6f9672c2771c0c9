"""What `arena verify` finds where PBT's rows were tampered with."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from arena.types import Entrant, PolicyId
from populations.audit.evolution_checks import begins_anew, check_evolution
from populations.records.rows import GenerationRow, Json, PolicyRow
from populations.records.tables import ASSIGNMENTS, Table, Tables
from tests.populations.controller.simulated import DUEL, by_rate, make_world

P1, P2 = PolicyId("player/p001"), PolicyId("player/p002")


@pytest.fixture(scope="module")
def sound() -> Tables:
    """A run in which policies exploited, explored and immigrated, stopped while one decides."""
    world = make_world({**DUEL, "pbt": {**DUEL["pbt"], "reference": False}})  # type: ignore[dict-item]
    world.learning = by_rate
    world.join()
    world.steps(84)
    assert world.events("exploited")
    return world.state.tables


def policy(tables: Tables, name: PolicyId, **changes: object) -> None:
    tables.policies[name] = replace(tables.policies[name], **changes)


def last(tables: Tables, name: PolicyId) -> GenerationRow:
    row: PolicyRow = tables.policies[name]
    return tables.generations[Entrant(f"{name}#{row.generation}")]


def pending(tables: Tables, **changes: Json) -> dict[str, Json]:
    checkpoint = next(row for row in tables.checkpoints.values() if row.state == "present")
    return {"kind": "exploit", "donor": P2, "checkpoint": checkpoint.key, **changes}


def gave_up(tables: Tables) -> None:
    key = str(pending(tables)["checkpoint"])
    tables.checkpoints[key] = replace(tables.checkpoints[key], state="deleted")
    policy(tables, P1, pending=pending(tables, checkpoint=key))


def test_a_run_as_the_controller_leaves_it_is_sound(sound: Tables) -> None:
    assert list(check_evolution(sound)) == []
    tables = copy.copy(sound)
    tables.policies = sound.policies.copy()
    tables.assignments = Table(ASSIGNMENTS)
    policy(tables, P1, pending=pending(tables))
    assert list(check_evolution(tables)) == []


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        (lambda t: policy(t, P1, generation=99), "it is in generation 99, but those recorded"),
        (lambda t: t.generations.__delitem__(last(t, P1).entrant), "but those recorded are"),
        (lambda t: policy(t, P1, generation_at=-5), "otherwise than as lasting since -5"),
        (lambda t: policy(t, P1, hyperparameters={}), "with other hyperparameters than are in use"),
        (lambda t: policy(t, P1, pending=pending(t, kind="swap")), "is of the kind 'swap'"),
        (lambda t: policy(t, P1, pending=pending(t, donor=P1)), f"decision is '{P1}'"),
        (lambda t: policy(t, P1, pending=pending(t, donor="nobody")), "decision is 'nobody'"),
        (lambda t: policy(t, P1, pending=pending(t, checkpoint="x")), "x, was never recorded"),
        (gave_up, "was given up"),
    ],
)  # fmt: skip
def test_what_is_broken_is_named(
    sound: Tables, tamper: Callable[[Tables], object], fault: str
) -> None:
    tables = copy.copy(sound)
    for name in ("policies", "generations", "checkpoints"):
        setattr(tables, name, getattr(sound, name).copy())
    tables.assignments = Table(ASSIGNMENTS)
    tamper(tables)
    faults = list(check_evolution(tables))
    assert any(fault in found for found in faults), faults


def test_a_gap_between_two_generations_is_a_fault(sound: Tables) -> None:
    row = next(row for row in sound.generations.values() if row.agent_steps_end is not None)
    tables = copy.copy(sound)
    tables.generations = sound.generations.copy()
    tables.generations[row.entrant] = replace(row, agent_steps_end=1)
    assert any(f"{row.entrant} ended at 1 agent steps" in f for f in check_evolution(tables))


def test_a_policy_in_training_cannot_wait_for_a_decision(sound: Tables) -> None:
    training = [
        trainee.policy
        for row in sound.assignments.values()
        if row.kind == "train"
        for trainee in row.message.trainees  # type: ignore[union-attr]
    ]
    assert training
    tables = copy.copy(sound)
    tables.policies = sound.policies.copy()
    policy(tables, training[0], pending={"kind": "explore"})
    assert any("it is in training" in fault for fault in check_evolution(tables))


def test_who_begins_anew_may_have_no_checkpoint(sound: Tables) -> None:
    tables = copy.copy(sound)
    row = last(tables, P1)
    at = sound.policies[P1].agent_steps
    for cause, begin, expected in (
        ("immigrate", at, True),
        ("reset", at, True),
        ("exploit", at, False),
        ("immigrate", at - 1, False),
    ):
        changed = replace(row, cause=cause, agent_steps_begin=begin)
        tables.generations = sound.generations.copy()
        tables.generations[row.entrant] = changed
        assert begins_anew(sound.policies[P1], tables) is expected
