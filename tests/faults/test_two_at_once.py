"""Two controllers want one run directory: one gets it, the other says who has it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.faults.killing import processes_of
from populations.config.run_file import RUN_FILE
from populations.storage.database import JOURNAL
from tests.faults.golden import NEWEST, copy_of
from tests.integration.conftest import Command, arena, launch_arguments, start  # noqa: F401
from tests.support import tables_of, wait_until

ENDLESS = "stop.agent_steps_per_policy=1000000000"


def race(run: Path, arguments: Sequence[str | Path], *, codes: tuple[int, ...]) -> None:
    """Start the same command twice; one is refused, the other works until it is told to stop."""
    both = [start(arguments) for _ in range(2)]
    try:
        wait_until(lambda: any(p.poll() is not None for p in both), timeout_s=60.0)
        loser, winner = sorted(both, key=lambda process: process.poll() is None)
        _, err = loser.communicate()
        assert loser.returncode in codes, err
        before = finished(run)
        wait_until(lambda: finished(run) > before, timeout_s=60.0)
        assert winner.poll() is None
        winner.send_signal(signal.SIGINT)
        out, err = winner.communicate(timeout=60)
        assert winner.returncode == 130, (out, err)
    finally:
        for process in both:
            stop(process)
    wait_until(lambda: not processes_of(run), timeout_s=5.0)


def finished(run: Path) -> int:
    """Assignments; 0 while there is no run yet."""
    if not (run / RUN_FILE).exists() or not (run / JOURNAL).exists():
        return 0
    return tables_of(run).run.assignments_finished


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


@pytest.mark.timeout(180)
def test_two_launches_at_once(tmp_path: Path, arena: Command) -> None:  # noqa: F811
    run = tmp_path / "run"
    # The other finds the directory locked (4), or the run made already (2).
    race(run, launch_arguments(run, ENDLESS, "--learners", "1"), codes=(2, 4))
    assert tables_of(run).run.epoch == 1
    arena("verify", run)


@pytest.mark.timeout(180)
def test_two_resumes_at_once(tmp_path: Path, arena: Command) -> None:  # noqa: F811
    run = copy_of(NEWEST, tmp_path)
    epoch = tables_of(run).run.epoch
    race(run, ["launch", "--resume", "--run-dir", run, ENDLESS], codes=(4,))
    assert tables_of(run).run.epoch == epoch + 1
    arena("verify", run)
