"""Transactions: rows are visible, indexed and committed once where that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.types import Digest, Entrant, PolicyId
from populations.controller.state.events import Now
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import NOT_MADE, Transaction
from populations.records.aggregates import RecordRow, Row
from populations.records.rows import (
    AssignmentRow,
    Deletion,
    EventRow,
    PolicyRow,
    PostponedRow,
    RunRow,
)
from populations.storage.journal import Journal
from tests.populations.controller.simulated import World, make_world
from tests.populations.records.test_tables import in_order
from tests.populations.rows import make_checkpoint, make_ghost


def recorded(world: World) -> tuple[Transaction, list[Row]]:
    """Return a transaction, and the rows that an index was fed with."""
    seen: list[Row] = []
    now = Now(monotonic_s=1.0, utc="2026-01-01T00:00:00+00:00")
    return Transaction(tables=world.state.tables, index=seen.append, now=now, seed=0), seen


def test_of_each_key_only_the_last_row_is_committed() -> None:
    world = make_world(joined=1)
    open_row = next(iter(world.state.tables.assignments.values()))
    tx, seen = recorded(world)
    tx.count(matches=2)
    tx.put(replace(open_row, attempt=5))
    policy = world.state.tables.policies[PolicyId("player/p000")]
    tx.put(replace(policy, agent_steps=7))
    tx.count(matches=3, agent_steps=1)
    tx.put(replace(open_row, status="failed"))
    tx.put(replace(policy, agent_steps=9))
    assert [type(row) for row in tx.rows] == [RunRow, AssignmentRow, PolicyRow]
    run, assignment, last = tx.rows
    assert last == replace(policy, agent_steps=9)
    assert isinstance(run, RunRow)
    assert isinstance(assignment, AssignmentRow)
    assert run.matches == make_world().state.tables.run.matches + 5
    assert assignment.status == "failed"
    assert len(seen) == 6, "an index sees each of them"


def test_a_journal_has_what_came_and_went_within_an_event_in_the_order_of_memory(
    tmp_path: Path,
) -> None:
    ghosts = [make_ghost("player/p000", steps) for steps in (1, 2, 3, 4)]
    first, second, third, fourth = ghosts
    with Journal.create(
        tmp_path / "journal.db", [RunRow(run="r"), first, second, third]
    ) as journal:
        tables = journal.load()
        now = Now(monotonic_s=1.0, utc="2026-01-01T00:00:00+00:00")
        tx = Transaction(tables=tables, index=lambda row: None, now=now, seed=0)
        tx.delete(first)
        tx.put(replace(first, linked=True))
        tx.put(replace(second, linked=True))
        tx.delete(second)
        tx.put(fourth)
        tx.delete(fourth)
        assert tx.rows == [
            Deletion(row=first),
            replace(first, linked=True),
            Deletion(row=second),
        ]
        journal.commit(tx.rows)
        assert in_order(journal.load()) == in_order(tables)
    assert list(tables.ghosts.values()) == [third, replace(first, linked=True)]


def test_a_standing_is_another_once_a_checkpoint_of_its_line_becomes_known() -> None:
    state = make_world().state
    tx = state.begin(Now(monotonic_s=1.0, utc="2026-01-01T00:00:00+00:00"))
    state.league.put(RecordRow(population="player", entrant=Entrant("a"), matches=1))
    tx.put(make_checkpoint("c", parent="b"))
    assert state.league.nearest_evaluated("player", Digest("c")) is None
    tx.put(make_checkpoint("b", parent="a"))
    assert state.league.nearest_evaluated("player", Digest("c")) == "a"


def test_what_raises_halfway_leaves_the_tables_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(joined=1)
    world.steps(4)
    tables = world.state.tables
    before = in_order(tables)
    changed: list[Row] = []

    def fail(state: ControllerState, tx: Transaction) -> None:
        changed.extend(tx.rows)
        raise ZeroDivisionError

    monkeypatch.setattr("populations.controller.machine.curves.follow", fail)
    with pytest.raises(ZeroDivisionError):
        world.step()
    assert any(isinstance(row, AssignmentRow) for row in changed)
    assert in_order(tables) == before


KINDS = ["exploited", "explored", "immigrated", "kept", "promoted", "retired", *NOT_MADE]


@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_answers_its_marks_and_ends_the_wait(kind: str) -> None:
    world = make_world()
    ann, bob = list(world.state.tables.policies)[:2]
    tx, _ = recorded(world)
    for name in (ann, bob):
        tx.put(PostponedRow(policy=name, reason="unrated"))
    tx.add_decision(kind, ann, marks=3)
    tables = world.state.tables
    assert (tables.run.pbt_decisions, tables.run.pbt_marks) == (kind not in NOT_MADE, 3)
    assert list(tables.postponed) == [bob]
    assert [(row.kind, row.subject) for row in tx.rows if isinstance(row, EventRow)] == [
        (kind, ann)
    ]
    # A row that is put and removed within one event is not committed at all.
    assert [row.policy for row in tx.rows if isinstance(row, PostponedRow)] == [bob]


def test_a_decision_that_no_clock_asked_for_does_not_count() -> None:
    world = make_world()
    tx, _ = recorded(world)
    waiting = PostponedRow(policy=next(iter(world.state.tables.policies)), reason="unrated")
    tx.put(waiting)
    tx.add_decision("exploited", waiting.policy, marks=None)
    tx.add_decision("exploited", waiting.policy, reason="it was in quarantine")
    tables = world.state.tables
    assert (tables.run.pbt_decisions, tables.run.pbt_marks) == (0, 0)
    assert list(tables.postponed.values()) == [waiting]
