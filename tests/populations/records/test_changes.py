"""Changes of tables in memory: secondary keys follow them, and those of an event are taken back."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import AssignmentId, Digest, Entrant, PolicyId
from populations.records.aggregates import RecordRow, Row
from populations.records.rows import (
    AssignmentRow,
    AssignmentStatus,
    CheckpointRow,
    Deletion,
    EventRow,
    PolicyState,
    RunRow,
)
from populations.records.tables import Table, Tables
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_evaluate,
    make_generation,
    make_ghost,
    make_policy,
    make_tally,
    make_tally_row,
    make_train,
    make_trainee,
    tables_with,
)

NUMBERS = st.integers(0, 3)
POLICIES = st.sampled_from([PolicyId(f"{name}/p00{i}") for name in ("cat", "dog") for i in (0, 1)])
ROLES = ("main", "main_exploiter")


def assignment(policies: list[PolicyId], number: int, status: AssignmentStatus) -> AssignmentRow:
    if not policies:
        row = make_assignment(make_evaluate(assignment_id=number, pairings=()))
    else:
        trainees = [make_trainee(policy) for policy in policies]
        message = make_train(*trainees, assignment_id=AssignmentId(number))
        row = AssignmentRow(
            assignment_id=AssignmentId(number), kind="train", message=message, metrics={}
        )
    return replace(row, status=status)


def record(number: int, matches: int) -> RecordRow:
    return RecordRow(population="cat", entrant=Entrant(f"w{number}"), matches=matches)


ROWS: st.SearchStrategy[Row] = st.one_of(
    st.builds(
        lambda policy, state, role: make_policy(policy, state=state, role=role),
        POLICIES,
        st.sampled_from(get_args(PolicyState)),
        st.sampled_from(ROLES),
    ),
    st.builds(
        lambda number, weights, policy, state: make_checkpoint(
            f"c{number}", weights_digest=f"w{weights}", policy=policy, state=state
        ),
        NUMBERS,
        NUMBERS,
        POLICIES,
        st.sampled_from(["present", "doomed", "deleted", "corrupt"]),
    ),
    st.builds(
        lambda policy, number, doomed: make_ghost(policy, number, doomed=doomed),
        POLICIES,
        NUMBERS,
        st.booleans(),
    ),
    st.builds(lambda policy, number: make_generation(policy, number), POLICIES, NUMBERS),
    st.builds(
        assignment,
        st.lists(POLICIES, max_size=2, unique=True),
        NUMBERS,
        st.sampled_from(get_args(AssignmentStatus)),
    ),
    st.builds(record, NUMBERS, NUMBERS),
    st.builds(lambda number: RunRow(run="r", matches=number), NUMBERS),
)


def every_table(tables: Tables) -> dict[str, Table[Any, Any]]:
    found = {name: getattr(tables, name) for name in Tables.__dataclass_fields__}
    return {name: value for name, value in found.items() if isinstance(value, Table)}


def in_order(tables: Tables) -> tuple[object, ...]:
    """All rows with their order, and all counts."""
    rows = {name: list(table.items()) for name, table in every_table(tables).items()}
    return rows, tables.run, tables.num_events, tables.num_tallies, tables.last_evaluation_sequence


def assert_keys_are_those_made_anew(tables: Tables) -> None:
    for table in every_table(tables).values():
        for name in table.kind.by:
            kept, anew = (
                {value: list(rows.items()) for value, rows in one.by(name).items()}
                for one in (table, table.copy())
            )
            assert kept == anew
            assert all(kept.values())
        for name in table.kind.first:
            assert list(table.first(name).items()) == list(table.copy().first(name).items())


def change(tables: Tables, data: st.DataObject) -> None:
    """Put or delete a row, or append an event or a tally, and ask for some keys, or not."""
    kind = data.draw(st.sampled_from(["put", "put", "delete", "event", "tally"]))
    match kind:
        case "put":
            tables.put(data.draw(ROWS))
        case "delete":
            rows = [row for table in every_table(tables).values() for row in table.values()]
            rows = [row for row in rows if not isinstance(row, AssignmentRow)]
            if rows:
                tables.put(Deletion(row=data.draw(st.sampled_from(rows))))
        case "event":
            number = tables.num_events + 1
            tables.put(EventRow(sequence=number, time="", kind="retired", subject="", data={}))
        case _:
            played = make_tally(("a", "b"), (0, 1, 1, 0, 0), matches=1)
            evaluated = make_tally_row(played, tables.num_tallies + 1, assignment_id=1)
            tables.put(replace(evaluated, kind=data.draw(st.sampled_from(["train", "evaluate"]))))
    for table in every_table(tables).values():
        if data.draw(st.booleans()):
            for name in table.kind.by:
                table.by(name)
            for name in table.kind.first:
                table.first(name)


@settings(deadline=None)
@given(st.data())
def test_secondary_keys_follow_all_changes_and_those_of_an_event_are_taken_back(
    data: st.DataObject,
) -> None:
    tables = tables_with()
    for _ in range(data.draw(st.integers(0, 12))):
        change(tables, data)
    assert_keys_are_those_made_anew(tables)
    before = in_order(tables)
    tables.begin()
    for _ in range(data.draw(st.integers(0, 12))):
        change(tables, data)
    assert_keys_are_those_made_anew(tables)
    tables.undo()
    assert in_order(tables) == before
    assert_keys_are_those_made_anew(tables)
    after = data.draw(ROWS)
    tables.put(after)
    tables.undo()
    assert in_order(tables) == before


def test_a_row_that_is_not_there_cannot_be_deleted() -> None:
    row: CheckpointRow = make_checkpoint("c", weights_digest=Digest("w"))
    with pytest.raises(KeyError):
        tables_with().put(Deletion(row=row))
