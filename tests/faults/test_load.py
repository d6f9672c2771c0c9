"""Many learners at once: nobody waits for what is not about it, and nothing is done twice."""

from __future__ import annotations

import sqlite3
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import pytest

from arena.checkpoints.manifest import Manifest
from arena.types import LearnerId
from arena.wire.messages import Acknowledge, Evaluate, FromController, Hello, Message, Train
from experiments.planted_league.week import Size, write_long_league
from populations.config.run_file import RunFile, learner_setup
from populations.controller.lineups import draw_lineup
from populations.controller.server import checkpoint_tasks
from populations.controller.server import server as server_module
from populations.controller.server.server import Server
from populations.controller.state.events import Event, Now, RatingsFitted
from populations.controller.state.state import ControllerState, make_state
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow
from populations.simulation.learner import SimulatedLearner
from populations.storage import store
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal, JournalReader
from tests.faults.conversation import DOCUMENT, conversation
from tests.populations.controller.server.test_server import (
    LEARNER,
    NoLauncher,
    RecordingJournal,
    ScriptedTransport,
)
from tests.populations.controller.simulated import DUEL, World, make_world

TIMES = 5


class Enough(Exception):
    """Ends a server that would go on."""


class Working(ScriptedTransport):
    """Carries out at once what it is given, and says every result several times."""

    def __init__(self, log: list[object], hello: Hello, learner: SimulatedLearner) -> None:
        super().__init__(log, hello)
        self.learner = learner
        self.manifests: dict[str, Manifest] = {}

    def send(self, learner: LearnerId, message: FromController) -> bool:
        if isinstance(message, Train | Evaluate):
            finished, manifests = self.learner.carry_out(message)
            self.manifests.update(manifests)
            results: list[tuple[LearnerId, Message]] = [(learner, finished)] * TIMES
            self.script += results
        return super().send(learner, message)


def serve(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    until: Callable[[list[object]], bool],
    world: World,
) -> tuple[list[object], list[str]]:
    """Serve one busy learner; what was committed and sent, and every directory that was read."""
    log: list[object] = []
    read: list[str] = []
    transport = Working(log, world.hello(LEARNER), world.learner)

    def verify(directory: Path) -> Manifest:
        key = directory.relative_to(tmp_path).as_posix()
        read.append(key)
        return transport.manifests[key]

    def receive(timeout_s: float) -> list[tuple[LearnerId, Message]]:
        if until(log):
            raise Enough
        return ScriptedTransport.receive(transport, timeout_s)

    monkeypatch.setattr(checkpoint_tasks, "verify_directory", verify)
    monkeypatch.setattr(store, "link_ghost", lambda *arguments, **named: None)
    monkeypatch.setattr(transport, "receive", receive)
    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=RecordingJournal(log, full_at="never"),
        transport=transport,
        launcher=NoLauncher(),
    )
    with pytest.raises(Enough):
        server.run()
    return log, read


def num_finished(log: list[object]) -> int:
    return sum(isinstance(row, AssignmentRow) and row.status == "finished" for row in log)


def test_a_result_that_is_said_again_and_again_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    log, read = serve(tmp_path, monkeypatch, until=lambda log: num_finished(log) >= 12, world=world)
    assert len(read) == len(set(read)) >= 8
    assert num_finished(log) == world.state.tables.run.assignments_finished


def test_results_do_not_wait_for_a_fit_of_ratings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    may_end, began = threading.Event(), threading.Event()

    def fit(known: object) -> Event:
        began.set()
        may_end.wait()
        return RatingsFitted(ratings={})

    monkeypatch.setattr(server_module, "_fit", fit)
    acknowledged_at_begin: list[int] = []

    def is_enough(log: list[object]) -> bool:
        acknowledged = sum(isinstance(entry, Acknowledge) for entry in log)
        if began.is_set() and not acknowledged_at_begin:
            acknowledged_at_begin.append(acknowledged)
        return bool(acknowledged_at_begin) and acknowledged >= acknowledged_at_begin[0] + 3 * TIMES

    try:
        serve(tmp_path, monkeypatch, until=is_enough, world=world)
    finally:
        may_end.set()


def num_calls(work: Callable[[], object]) -> int:
    """Functions that are called, also those that are not Python's."""
    calls = 0

    def count(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += kind in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def busy_world(*, num_learners: int) -> World:
    world = make_world({**DUEL, "populations": {"player": {"size": 4 * num_learners}}})
    for _ in range(num_learners):
        world.join()
    return world


def test_a_heartbeat_costs_the_same_however_many_learners_there_are() -> None:
    costs = set()
    for num_learners in (3, 30):
        world = busy_world(num_learners=num_learners)
        world.beat(LEARNER, progress=1)
        costs.add(num_calls(lambda world=world: world.beat(LEARNER, progress=2)))  # type: ignore[misc]
    assert len(costs) == 1


def test_whose_turn_it_is_does_not_take_longer_for_many_who_are_leased() -> None:
    costs = set()
    for num_learners in (5, 50):
        state = busy_world(num_learners=num_learners).state
        assert len(state.tables.assignments) == 2 * num_learners

        def following(state: ControllerState = state) -> object:
            return state.indexes.training_queue.next(
                held_up=set(), may_train=lambda population: True
            )

        expected = state.tables.policies[list(state.tables.policies)[2 * num_learners]]
        assert following() == expected
        costs.add(num_calls(following))
    assert len(costs) == 1


def test_many_learners_are_served_fairly_and_in_bounds(tmp_path: Path) -> None:
    num_learners, num_policies = 6, 20
    document = {
        **DOCUMENT,
        "populations": {"player": {"size": num_policies}},
        "deterministic": False,
        "stop": {"agent_steps_per_policy": 10_000_000},
    }
    most_open = 0
    with conversation(tmp_path / "run", document=document, learners=num_learners) as talk:
        tables = talk.open_run.state.tables

        def look(rows: Sequence[Row]) -> None:
            nonlocal most_open
            del rows
            most_open = max(most_open, len(tables.assignments))
            if tables.run.assignments_finished >= 10 * num_policies:
                talk.server.request_stop("that was enough")

        talk.watchers.append(look)
        talk.server.run()
    assert most_open <= 2 * num_learners
    with JournalReader(tmp_path / "run" / JOURNAL) as reader:
        finished = reader.assignments(statuses=("finished",))
    assert len({row.learner for row in finished}) == num_learners
    # The policy with the fewest steps is trained next.
    trained = Counter(policy for row in finished for policy in row.trained)
    assert len(trained) == num_policies
    assert max(trained.values()) <= 2 * min(trained.values())


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
        opened(run_dir)  # this imports modules and fills caches once
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


def num_calls_of_rows(state: ControllerState) -> int:
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
    small, large = (num_calls_of_rows(opened(run_dir)) for run_dir in runs.values())
    assert large < 1.2 * small + 20, (small, large)
