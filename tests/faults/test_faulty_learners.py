"""Faulty learner processes beside healthy ones: told why they go, and nobody else is harmed."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.learners.state import EXIT_AGAIN, EXIT_REFUSED
from arena.wire.keys import key_path
from populations.audit.verify import verify_run
from populations.records.rows import EventRow
from populations.storage.journal import JournalReader
from tests.assets.faulty_learner import KINDS
from tests.faults.runs import (
    ASSETS,
    IMPATIENT,
    check_left,
    document,
    events,
    finished,
    launch,
    served,
)
from tests.integration.conftest import ARENA
from tests.support import run_process, wait_until

TIMEOUT_S = 200.0
GOES_ON = 12
"""Assignments that healthy learners finish after the last faulty one has gone."""


@contextlib.contextmanager
def faulty(
    run: Path, kinds: Sequence[str], *, endpoint: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a learner process of each kind of fault."""
    script = str(ASSETS / "faulty_learner.py")
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(run / "learner.json"), endpoint, kind],
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.timeout(300)
def test_faulty_learners_of_each_kind_harm_neither_policies_nor_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = document(learners=2)
    populations = config["populations"]
    assert isinstance(populations, dict)
    populations["player"]["size"] = 12
    patience = replace(IMPATIENT, refused_s=0.0, stall_s=30.0)

    with served(run, config, patience=patience) as watched:
        state = watched.server._state

        def is_over(seen: Sequence[EventRow]) -> bool:
            dismissed = [event for event in seen if event.kind == "learner_dismissed"]
            if len(dismissed) < len(KINDS):
                state_at[0] = state.tables.run.assignments_finished
                return False
            return state.tables.run.assignments_finished >= state_at[0] + GOES_ON

        state_at = [0]
        watched.done = is_over
        with faulty(run, KINDS, endpoint=watched.server._transport.endpoint) as processes:
            watched.server.run()
            codes = [process.wait(timeout=TIMEOUT_S) for process in processes]
            said = [process.stderr.read() for process in processes if process.stderr is not None]
    # Each may come again, once what it says is mended.
    ended = state.tables.run.reason, [(event.kind, event.subject) for event in watched.events]
    assert codes == [EXIT_AGAIN] * len(KINDS), ended
    for text in said:
        assert "assignments in a row failed on this learner and not on others" in text
    dismissed = watched.of("learner_dismissed")
    assert len(dismissed) == len(KINDS)
    assert not watched.of("quarantined", "checkpoint_corrupt", "ghost_corrupt", "storage_full")
    with JournalReader(run / "journal.db") as reader:
        tables = reader.load()
    assert {(row.state, row.generation) for row in tables.policies.values()} == {("active", 0)}
    assert tables.run.state == "stopped"
    assert verify_run(run).faults == []


@pytest.mark.timeout(300)
def test_a_learner_without_the_runs_directory_is_told_what_to_mount(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    config = document(endpoint="tcp://127.0.0.1:*", remote_learners=1)
    process = launch(run, config)
    try:
        wait_until(lambda: finished(run) >= 3, timeout_s=TIMEOUT_S)
        endpoint = json.loads((run / "status.json").read_text())["endpoint"]
        elsewhere.mkdir()
        shutil.copy(run / "run.yaml", elsewhere)
        # A directory without a store would ask for checkpoints; this is another run's.
        (elsewhere / "store.id").write_text("0" * 32)
        keys = shutil.copytree(run / "keys", elsewhere / "keys")
        join = ["learner", elsewhere / "run.yaml", "--connect", endpoint]
        joined = run_process(
            [*ARENA, *join, "--keys", key_path(keys, "remote-0")], cwd=ASSETS, timeout_s=TIMEOUT_S
        )
        assert joined.returncode == EXIT_REFUSED
        text = " ".join(joined.stderr.split())
        assert f"mount the directory {run} of the controller's machine on this one" in text
        before = finished(run)
        wait_until(lambda: finished(run) >= before + 3, timeout_s=TIMEOUT_S)
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    (refused,) = events(run, "learner_refused")
    assert str(refused.subject).startswith("remote-0.")
    assert not events(run, "checkpoint_corrupt", "assignment_failed", "learner_dismissed")
    check_left(run)
