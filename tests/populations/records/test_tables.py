"""Random rows against a model of dictionaries."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from arena.wire.messages import Evaluate, Train
from populations.records.aggregates import PairRow, RecordRow, Row
from populations.records.rows import (
    AlertRow,
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    PostponedRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.storage.journal import Journal, JournalReader
from tests.instances import instances
from tests.populations.rows import tables_with

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
            assert replace(without_pairs, pairs=tables.pairs) == tables
            tallies = [row for _, row in sorted(model.of(TallyRow).items())]
            assert reader.tallies() == list(reader.all_tallies()) == tallies
            assert reader.events() == [row for _, row in sorted(model.of(EventRow).items())]
            history = [row for _, row in sorted(model.of(AssignmentRow).items())]
            assert reader.assignments() == history
            for read, written in zip(reader.assignments(), history, strict=True):
                assert exactly(read.message) == exactly(written.message)
                assert exactly(dict(read.metrics)) == exactly(dict(written.metrics))
