"""Clocks that jump, and machines that sleep (F12, F13)."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from experiments.faults.killing import processes_of
from populations.audit.verify import verify_run
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.faults.conversation import conversation
from tests.faults.impatient import LIVENESS_S
from tests.faults.outcomes import differences, outcome
from tests.faults.runs import finished
from tests.support import wait_until

pytestmark = pytest.mark.timeout(400)

JUMPS = (
    timedelta(days=1),
    timedelta(days=-1),
    timedelta(hours=1),  # daylight saving time
    timedelta(hours=-1),
    timedelta(milliseconds=-300),  # a step of NTP
    timedelta(0),
)
START_S = 250.0


def jumping() -> tuple[Callable[[], str], Callable[[], float]]:
    """A wall clock that jumps at every look, for records and for everybody else."""
    jumps = itertools.cycle(JUMPS)
    now = time.time

    def utc() -> str:
        return (datetime.now(UTC) + next(jumps)).isoformat(timespec="milliseconds")

    return utc, lambda: now() + next(jumps).total_seconds()


def test_a_wall_clock_that_jumps_changes_no_decision_and_loses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversation(tmp_path / "steady") as talk:
        talk.server.run()
    utc, seconds = jumping()
    with conversation(tmp_path / "jumping", utc=utc) as talk:
        monkeypatch.setattr(time, "time", seconds)
        talk.server.run()
        monkeypatch.undo()
    assert differences(outcome(tmp_path / "steady"), outcome(tmp_path / "jumping")) == []
    with JournalReader(tmp_path / "jumping" / JOURNAL) as reader:
        events = reader.events()
        run = reader.load().run
    times = [row.time for row in events]
    assert times != sorted(times), "the clock has jumped"
    assert not [row for row in events if row.kind == "learner_lost"]
    assert 0.0 < run.elapsed_s < 3600.0
    assert verify_run(tmp_path / "jumping").faults == []


def test_a_controller_that_was_stopped_for_long_loses_nobody(tmp_path: Path) -> None:
    run = tmp_path / "run"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tests.faults.impatient", str(run)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: finished(run) >= 6, timeout_s=START_S)
        process.send_signal(signal.SIGSTOP)
        # a plain sleep: no condition can be waited for while everything stands still
        time.sleep(3.0 * LIVENESS_S)
        before = finished(run)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: finished(run) >= before + 6, timeout_s=START_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=START_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    with JournalReader(run / JOURNAL) as reader:
        events = reader.events()
    kinds = [row.kind for row in events]
    assert kinds.count("learner_joined") == 2
    assert "learner_lost" not in kinds
    assert "learner_start_failed" not in kinds
    assert not processes_of(run)
    assert verify_run(run).faults == []
