"""Random rows against a model of dictionaries."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from arena.types import AssignmentId, Digest, Entrant, PolicyId
from arena.wire.messages import Evaluate, Train
from populations.records.aggregates import PairRow, RecordRow, Row
from populations.records.rows import (
    AlertRow,
    ArchiveRow,
    AssignmentRow,
    AssignmentStatus,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    PolicyState,
    PostponedRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Table, Tables
from populations.storage.journal import Journal, JournalReader
from tests.instances import instances
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

T = TypeVar("T")
StructT = TypeVar("StructT", bound=Struct)

KEYS = st.integers(1, 4)
"""So few that rows replace each other."""
ROWS: st.SearchStrategy[Row] = st.one_of(
    *(
        instances(kind)
        for kind in (
            *(RunRow, PolicyRow, CheckpointRow, GhostRow, GenerationRow, RecordRow, PairRow),
            *(RatingsRow, GameRow, PostponedRow, AlertRow),
        )
    ),
    *(instances(kind, sequence=KEYS) for kind in (TallyRow, EventRow)),
    *(
        instances(
            AssignmentRow,
            assignment_id=KEYS,
            kind=st.just(message.__name__.lower()),
            message=instances(message),
        )
        for message in (Train, Evaluate)
    ),
    instances(GhostRow).map(lambda row: Deletion(row=row)),
)


class Model:
    """What a journal should hold, as dictionaries."""

    def __init__(self, run: RunRow) -> None:
        self.rows: dict[tuple[type, Any], Row] = {(RunRow, None): run}

    def commit(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row, Deletion):
                self.rows.pop((type(row.row), self._key(row.row)), None)
            else:
                self.rows[type(row), self._key(row)] = row

    @staticmethod
    def _key(row: Row) -> object:
        match row:
            case RunRow():
                return None
            case PolicyRow() | PostponedRow():
                return row.policy
            case CheckpointRow():
                return row.key
            case GhostRow():
                return row.player
            case GenerationRow():
                return row.entrant
            case AlertRow():
                return row.name, row.subject
            case GameRow():
                return row.game
            case AssignmentRow():
                return row.assignment_id
            case RecordRow() | PairRow():
                return row.key
            case RatingsRow():
                return row.population
            case TallyRow() | EventRow():
                return row.sequence
            case Deletion():
                raise AssertionError("it is no row of a table")
            case ArchiveRow():
                return row.number
            case _:
                raise AssertionError("a kind of row that this model does not know")

    def of(self, kind: type[T]) -> dict[Any, T]:
        return {key: row for (_, key), row in self.rows.items() if isinstance(row, kind)}

    def tables(self) -> Tables:
        tallies = self.of(TallyRow)
        return tables_with(
            run=self.of(RunRow)[None],
            policies=self.of(PolicyRow),
            postponed=self.of(PostponedRow),
            checkpoints=self.of(CheckpointRow),
            ghosts=self.of(GhostRow),
            generations=self.of(GenerationRow),
            assignments={
                key: row for key, row in self.of(AssignmentRow).items() if row.status == "queued"
            },
            records=self.of(RecordRow),
            pairs=self.of(PairRow),
            ratings=self.of(RatingsRow),
            alerts=self.of(AlertRow),
            games=self.of(GameRow),
            num_events=max(self.of(EventRow), default=0),
            num_tallies=max(tallies, default=0),
            last_evaluation_sequence=max(
                (sequence for sequence, row in tallies.items() if row.kind == "evaluate"), default=0
            ),
        )


def exactly(value: object) -> object:
    """Equal values that are not written the same way (4 and 4.0) differ here."""
    return repr(value)


@settings(max_examples=50, deadline=None)
@given(commits=st.lists(st.lists(ROWS, max_size=5), max_size=5))
@pytest.mark.slow
def test_what_is_loaded_is_what_was_committed(commits: list[list[Row]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "journal.db")
        first = RunRow(run="r")
        model = Model(first)
        with Journal.create(path, [first]) as journal:
            for rows in commits:
                journal.commit(rows)
                model.commit(rows)
                assert journal.load() == model.tables()
        with JournalReader(path) as reader:
            tables = reader.load()
            assert tables == model.tables()
            for name in ("policies", "checkpoints", "ghosts", "generations", "records", "pairs"):
                assert list(getattr(tables, name)) == list(getattr(model.tables(), name))
            without_pairs = reader.load(pairs=())
            assert without_pairs.pairs == {}
            assert dataclasses.replace(without_pairs, pairs=tables.pairs) == tables
            tallies = [row for _, row in sorted(model.of(TallyRow).items())]
            assert reader.tallies() == list(reader.all_tallies()) == tallies
            assert reader.events() == [row for _, row in sorted(model.of(EventRow).items())]
            history = [row for _, row in sorted(model.of(AssignmentRow).items())]
            assert reader.assignments() == history
            for read, written in zip(reader.assignments(), history, strict=True):
                assert exactly(read.message) == exactly(written.message)
                assert exactly(dict(read.metrics)) == exactly(dict(written.metrics))


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


CHANGED_ROWS: st.SearchStrategy[Row] = st.one_of(
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
            tables.put(data.draw(CHANGED_ROWS))
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
    after = data.draw(CHANGED_ROWS)
    tables.put(after)
    tables.undo()
    assert in_order(tables) == before


def test_a_row_that_is_not_there_cannot_be_deleted() -> None:
    row: CheckpointRow = make_checkpoint("c", weights_digest=Digest("w"))
    with pytest.raises(KeyError):
        tables_with().put(Deletion(row=row))
