"""Random rows against a model of dictionaries."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, TypeVar, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct, structs

from arena.wire.messages import Evaluate, Train
from populations.records.aggregates import PairRow, RecordRow, Row
from populations.records.columns import is_union
from populations.records.rows import (
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.storage.journal import Journal, JournalReader

T = TypeVar("T")
StructT = TypeVar("StructT", bound=Struct)

TEXTS = (
    *("", "a", "b", "../../x", "<script>", "\u202e", "\x1b[31m", "x\0y", "'; --"),
    *("player/p000", "player/p000#1", "player/p000@000000000001", "bot:random", "k/1", "1.0"),
    *("a" * 64, "b" * 64),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.integers(1, 4)
"""So few that rows replace each other."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def of_type(kind: Any, bounds: Meta | None = None) -> st.SearchStrategy[Any]:
    """A strategy for values of a type, within its bounds."""
    if isinstance(kind, NewType):
        return of_type(kind.__supertype__)
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Annotated:
            return of_type(*arguments[:2])
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if is_union(kind):
            return st.one_of([of_type(one) for one in arguments])
        case origin if origin is tuple:
            return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
        case origin if origin in (dict, Mapping):
            return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    bounds = bounds or Meta()
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(
            -(2**63) + 1 if bounds.ge is None else int(bounds.ge),
            2**63 - 1 if bounds.le is None else int(bounds.le),
        ),
        float: FLOATS if bounds.ge is None else st.floats(bounds.ge, bounds.le),
        bool: st.booleans(),
        str: st.sampled_from([text for text in TEXTS if re.search(bounds.pattern or "", text)]),
        bytes: st.binary(max_size=8),
        type(None): st.none(),
        Any: JSON,
    }
    return simple[kind] if kind in simple else build(kind)


def build(
    kind: type[StructT], /, **given_strategies: st.SearchStrategy[Any]
) -> st.SearchStrategy[StructT]:
    """A strategy for a Struct, by the types of its fields."""
    strategies = {field.name: of_type(field.type) for field in structs.fields(kind)}
    return st.builds(kind, **{**strategies, **given_strategies})


ROWS: st.SearchStrategy[Row] = st.one_of(
    *(
        build(kind)
        for kind in (
            *(RunRow, PolicyRow, CheckpointRow, GhostRow, GenerationRow, RecordRow, PairRow),
            *(RatingsRow, GameRow),
        )
    ),
    *(build(kind, sequence=KEYS) for kind in (TallyRow, EventRow)),
    *(
        build(
            AssignmentRow,
            assignment_id=KEYS,
            kind=st.just(message.__name__.lower()),
            message=build(message),
        )
        for message in (Train, Evaluate)
    ),
    build(GhostRow).map(lambda row: Deletion(row=row)),
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
            case PolicyRow():
                return row.policy
            case CheckpointRow():
                return row.key
            case GhostRow():
                return row.player
            case GenerationRow():
                return row.entrant
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
        return Tables(
            run=self.of(RunRow)[None],
            policies=self.of(PolicyRow),
            checkpoints=self.of(CheckpointRow),
            ghosts=self.of(GhostRow),
            generations=self.of(GenerationRow),
            assignments={
                key: row for key, row in self.of(AssignmentRow).items() if row.status == "queued"
            },
            records=self.of(RecordRow),
            pairs=self.of(PairRow),
            ratings=self.of(RatingsRow),
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
