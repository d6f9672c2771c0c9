"""Random rows against a model of dictionaries."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import (
    CheckpointRef,
    PairScore,
    Player,
    Seating,
    SeatOpenings,
    Tally,
    WeightsRef,
)
from arena.wire.messages import Evaluate, Pairing, Train, Trainee
from populations.records.aggregates import PairRow, RecordRow
from populations.records.plain import bare, fields_of, is_union
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
    Row,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.storage.journal import Journal, JournalReader

T = TypeVar("T")

INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(
    ["", "a", "b", "../../x", "<script>", "\u202e", "\x1b[31m", "x\0y", "'; --"]
)
NUMBERS = st.dictionaries(NAMES, FLOATS | st.integers(0, 2**70), max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def build(kind: type[T], /, **given_strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """A strategy for a dataclass: numbers by their annotation, names for all else."""
    by_type: dict[object, st.SearchStrategy[Any]] = {
        int: INTEGERS,
        float: FLOATS,
        bool: st.booleans(),
    }
    declared: Any = kind
    strategies = {}
    for field in fields_of(declared):
        parts = get_args(field.type) if is_union(field.type) else (field.type,)
        of_it = by_type.get(bare(parts[0]), NAMES)
        strategies[field.name] = of_it if len(parts) == 1 or of_it is NAMES else st.none() | of_it
    return st.builds(kind, **{**strategies, **given_strategies})


def several(item: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(item, max_size=3).map(tuple)


WEIGHTS = build(WeightsRef)
SEATING = build(Seating, players=several(build(Player, weights=st.none() | WEIGHTS)))
TRAIN = build(
    Train,
    trainees=several(
        build(
            Trainee,
            checkpoint=st.none() | build(CheckpointRef),
            donor=st.none() | NAMES,
            initial_weights=st.none() | WEIGHTS,
            hyperparameters=NUMBERS,
        )
    ),
    opponents=several(SEATING),
    carried=several(SEATING),
    seed=st.integers(0, 2**128),
)
EVALUATE = build(Evaluate, pairings=several(build(Pairing, seating=SEATING)))
STATUS = st.sampled_from(["queued", "finished", "failed"])
KEYS = st.integers(1, 4)
ASSIGNMENTS = [
    build(
        AssignmentRow,
        assignment_id=KEYS,
        kind=st.just(kind),
        status=STATUS,
        message=message,
        learner=st.none() | NAMES,
        metrics=NUMBERS,
    )
    for kind, message in (("train", TRAIN), ("evaluate", EVALUATE))
]
TALLY = build(
    Tally,
    entrants=several(NAMES),
    pairs=several(build(PairScore)),
    return_sum=several(FLOATS),
    return_sum_of_squares=several(FLOATS),
    openings=several(
        build(SeatOpenings, actions=several(KEYS), matches=several(KEYS), points=several(FLOATS))
    ),
)
ROWS: st.SearchStrategy[Row] = st.one_of(
    build(
        RunRow,
        state=st.sampled_from(["running", "stopped", "finished", "failed"]),
        devices=st.lists(st.sampled_from(["cpu", "cuda"])).map(tuple),
    ),
    build(
        PolicyRow,
        state=st.sampled_from(["active", "quarantined"]),
        checkpoint=st.none() | NAMES,
        parent=st.none() | NAMES,
        hyperparameters=NUMBERS,
        factors=NUMBERS,
        pending=st.dictionaries(NAMES, JSON, max_size=3),
    ),
    build(
        CheckpointRow,
        parent=st.none() | NAMES,
        state=st.sampled_from(["present", "doomed", "deleted", "corrupt"]),
    ),
    build(GhostRow),
    build(GhostRow).map(lambda row: Deletion(row=row)),
    build(
        GenerationRow,
        cause=st.sampled_from(["start", "exploit", "explore", "reset", "immigrate", "replay"]),
        parent=st.none() | NAMES,
        hyperparameters=NUMBERS,
        factors=NUMBERS,
        agent_steps_end=st.none() | KEYS,
        rating_begin=st.none() | FLOATS,
        rating_end=st.none() | FLOATS,
        gain_deviation=st.none() | FLOATS,
        gain_agent_steps=st.none() | KEYS,
    ),
    *ASSIGNMENTS,
    build(TallyRow, sequence=KEYS, kind=st.sampled_from(["train", "evaluate"]), tally=TALLY),
    build(RecordRow),
    build(PairRow, kind=st.sampled_from(["train", "evaluate"]), first_seat=KEYS, second_seat=KEYS),
    build(
        RatingsRow,
        entrants=several(NAMES),
        ratings=several(FLOATS),
        deviations=several(FLOATS),
        advantages=several(FLOATS),
        anchor_errors=several(FLOATS),
        rank_lows=several(KEYS),
        rank_highs=several(KEYS),
        best=several(NAMES),
        best_ratings=several(FLOATS),
        best_deviations=several(FLOATS),
        former_best=several(NAMES),
        open=several(NAMES),
    ),
    build(EventRow, sequence=KEYS, data=st.dictionaries(NAMES, JSON, max_size=3)),
    build(
        GameRow,
        game=NAMES,
        seats=several(KEYS),
        players=several(NAMES),
        entrants=several(NAMES),
        keys=several(NAMES),
        points=several(FLOATS),
        returns=several(FLOATS),
        actions=st.binary(max_size=8),
        shown=st.binary(max_size=8),
    ),
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
