"""Ten thousand policies: what a controller does grows with the league, not with its square.

Figures against bounds are `experiments.load.bounds`; here is the structure that they rest on.
"""

from __future__ import annotations

import sqlite3
import sys
import tracemalloc
from pathlib import Path
from types import FrameType

import pytest

from experiments.planted_league.week import Size, write_long_league
from populations.config.run_file import RunFile, learner_setup
from populations.controller.lineups import draw_lineup
from populations.controller.state.events import Now
from populations.controller.state.state import ControllerState, make_state
from populations.storage.journal import Journal, JournalReader

SMALL, LARGE = 40, 160
"""Policies; what grows with the square grows 16 times."""

SIZE = Size(checkpoints=4, evaluated_every=4, ghosts_every=2, pairs=4, met=2)
"""Every policy has played as much, whatever the league's size."""

NOW = Now(monotonic_s=0.0, utc="2000-01-01T00:00:00+00:00")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    root = tmp_path_factory.mktemp("runs")
    found = {num_policies: root / str(num_policies) for num_policies in (SMALL, LARGE)}
    for num_policies, run_dir in found.items():
        write_long_league(run_dir, SIZE, num_policies=num_policies)
    return found


def opened(run_dir: Path) -> ControllerState:
    run_file = RunFile.load(run_dir / "run.yaml")
    with Journal.open(run_dir / "journal.db") as journal:
        tables = journal.load()
    return make_state(run_file.config, learner_setup(run_file, root=run_dir), tables)


def test_memory_grows_with_the_league_not_with_its_square(runs: dict[int, Path]) -> None:
    held = {}
    for num_policies, run_dir in runs.items():
        opened(run_dir)  # what is imported and cached once
        tracemalloc.start()
        try:
            state = opened(run_dir)
            tx = state.begin(NOW)
            draw_lineup(state, tx, (next(iter(state.tables.policies.values())),))
            held[num_policies] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert held[LARGE] < 1.5 * (LARGE / SMALL) * held[SMALL], held


def test_a_journal_is_read_in_as_many_queries_whatever_its_size(runs: dict[int, Path]) -> None:
    numbers = set()
    for run_dir in runs.values():
        queries: list[str] = []
        with JournalReader(run_dir / "journal.db") as reader:
            connection: sqlite3.Connection = reader._connection
            connection.set_trace_callback(queries.append)
            reader.load()
        numbers.add(len(queries))
        assert not [
            query for query in queries if "FROM tallies" in query and "LIMIT 1" not in query
        ]
    assert len(numbers) == 1


def num_calls(state: ControllerState) -> int:
    """Python functions that are called to choose opponents once everything is known."""
    tx = state.begin(NOW)
    policies = list(state.tables.policies.values())
    draw_lineup(state, tx, (policies[0],))
    calls = 0

    def count(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += kind == "call"

    sys.setprofile(count)
    try:
        draw_lineup(state, tx, (policies[1],))
    finally:
        sys.setprofile(None)
    return calls


def test_choosing_opponents_looks_at_no_candidate_one_by_one(runs: dict[int, Path]) -> None:
    small, large = (num_calls(opened(run_dir)) for run_dir in runs.values())
    assert large < 1.2 * small + 20, (small, large)
