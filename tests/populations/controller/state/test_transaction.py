"""Transactions: rows are visible, indexed and committed once where that is said."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.state.events import Now
from populations.controller.state.transaction import Transaction
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow, EventRow, PolicyRow, RunRow
from tests.populations.controller.simulated import World, make_world


def recorded(world: World) -> tuple[Transaction, list[Row]]:
    """Return a transaction, and the rows that an index was fed with."""
    seen: list[Row] = []
    now = Now(monotonic_s=1.0, utc="2026-01-01T00:00:00+00:00")
    return Transaction(tables=world.state.tables, index=seen.append, now=now), seen


def test_a_row_is_in_the_tables_in_the_index_and_among_the_rows_at_once() -> None:
    world = make_world()
    tx, seen = recorded(world)
    row = replace(world.state.tables.policies[PolicyId("player/p000")], agent_steps=9)
    tx.put(row)
    assert world.state.tables.policies[row.policy] is row
    assert tx.rows == seen == [row]


def test_of_the_run_and_of_an_assignment_only_the_last_row_is_committed() -> None:
    world = make_world(joined=1)
    open_row = next(iter(world.state.tables.assignments.values()))
    tx, seen = recorded(world)
    tx.count(matches=2)
    tx.put_assignment(replace(open_row, attempt=5))
    tx.put(world.state.tables.policies[PolicyId("player/p000")])
    tx.count(matches=3, agent_steps=1)
    tx.put_assignment(replace(open_row, status="failed"))
    assert [type(row) for row in tx.rows] == [RunRow, AssignmentRow, PolicyRow]
    run, assignment, _ = tx.rows
    assert isinstance(run, RunRow)
    assert isinstance(assignment, AssignmentRow)
    assert run.matches == make_world().state.tables.run.matches + 5
    assert assignment.status == "failed"
    assert len(seen) == 5, "an index sees each of them"


def test_only_open_assignments_are_in_memory() -> None:
    world = make_world(joined=1)
    tables = world.state.tables
    row = next(iter(tables.assignments.values()))
    tx, _ = recorded(world)
    tx.put_assignment(replace(row, status="finished"))
    assert row.assignment_id not in tables.assignments
    tx.put_assignment(row)
    assert tables.assignments[row.assignment_id] is row


def test_events_are_numbered_without_gaps_and_have_the_time() -> None:
    world = make_world()
    before = world.state.tables.num_events
    tx, seen = recorded(world)
    tx.add_event("kept", "player/p000", reason="it is good")
    tx.add_event("kept")
    assert tx.rows == seen
    first, second = tx.rows
    assert isinstance(first, EventRow)
    assert isinstance(second, EventRow)
    assert (first.sequence, second.sequence) == (before + 1, before + 2)
    assert (first.time, first.subject, first.data) == (
        "2026-01-01T00:00:00+00:00",
        "player/p000",
        {"reason": "it is good"},
    )
