"""Signals, closed pipes and closed terminals: F31, F32."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from populations.views.questions.inspection import Inspection
from populations.views.run import status_document
from tests.faults.runs import (
    ASSETS,
    check_left,
    document,
    events,
    finished,
    launch,
    learners_of,
)
from tests.support import run_process, wait_until

TIMEOUT_S = 60.0
EVOLVING = {
    "pbt": {
        "ready_agent_steps": 256,
        "warm_up_agent_steps": 256,
        "min_matches": 1,
        "min_rating_gap": 1,
        "reference": False,
    },
    "evaluation": {"share": 0.4},
}
SLOW_PUBLISH = "publish.*=sleep:100"
SLOW_COMMIT = "journal.*=sleep:20"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that each test goes on with and interrupts."""
    run = tmp_path_factory.mktemp("signals") / "run"
    process = launch(run, document(**EVOLVING))
    end(process, run, [signal.SIGINT], code=130)
    return run


def end(process: subprocess.Popen[str], run: Path, numbers: Sequence[int], *, code: int) -> str:
    """Let it do something, send signals, and look at what they leave; standard error."""
    before = finished(run)
    wait_until(lambda: finished(run) > before or process.poll() is not None, timeout_s=TIMEOUT_S)
    for number in numbers:
        process.send_signal(number)
    _, error = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, error
    assert "Traceback" not in error
    check_left(run)
    return error


def state_of(run: Path) -> str:
    inspection = Inspection.open(run)
    try:
        return str(status_document(inspection, None)["state"])
    finally:
        inspection.close()


@pytest.mark.parametrize(
    ("number", "code", "failpoints"),
    [
        (signal.SIGINT, 130, ""),
        (signal.SIGINT, 130, SLOW_PUBLISH),
        (signal.SIGTERM, 143, SLOW_PUBLISH),
        (signal.SIGHUP, 143, SLOW_COMMIT),
    ],
)
def test_the_first_signal_saves_everything(
    number: int, code: int, failpoints: str, run: Path
) -> None:
    error = end(launch(run, None, failpoints=failpoints), run, [number], code=code)
    assert state_of(run) == "stopped"
    assert f"interrupted by {signal.Signals(number).name}" in error
    stopped = events(run, "run_stopped")[-1]
    assert signal.Signals(number).name in str(stopped.data["reason"])


@pytest.mark.parametrize(
    ("number", "code", "failpoints"),
    [(signal.SIGINT, 130, SLOW_COMMIT), (signal.SIGTERM, 143, SLOW_PUBLISH)],
)
def test_the_second_one_ends_it_at_once_and_it_is_consistent_all_the_same(
    number: int, code: int, failpoints: str, run: Path
) -> None:
    process = launch(run, None, failpoints=failpoints)
    error = end(process, run, [number, number], code=code)
    if state_of(run) != "stopped":  # it was not faster than the second one
        assert state_of(run) == "crashed"
        assert (
            f"once more; from what is saved goes on: arena launch --resume --run-dir {run}" in error
        )


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGTERM, 1), (signal.SIGINT, 2), (signal.SIGHUP, 1)]
)
def test_a_signal_to_a_learner_costs_the_run_nothing(number: int, times: int, run: Path) -> None:
    process = launch(run, None)
    before = finished(run)
    wait_until(lambda: finished(run) > before, timeout_s=TIMEOUT_S)
    joined = len(events(run, "learner_joined"))
    (learner,) = learners_of(run)
    for _ in range(times):
        learner.send_signal(number)
    wait_until(lambda: len(events(run, "learner_joined")) > joined, timeout_s=TIMEOUT_S)
    end(process, run, [signal.SIGINT], code=130)
    assert state_of(run) == "stopped"


def test_an_exploit_that_is_interrupted_is_done_or_not(run: Path) -> None:
    process = launch(run, None, failpoints="controller.before_commit=sleep:20")
    seen = len(events(run, "exploited", "kept"))
    wait_until(lambda: len(events(run, "exploited", "kept")) > seen, timeout_s=TIMEOUT_S)
    end(process, run, [signal.SIGINT, signal.SIGINT], code=130)


def test_who_stops_reading_ends_the_run_as_a_hang_up_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(document()))
    arena = f"'{sys.executable}' -m populations.commands.main launch '{config}' --run-dir '{run}'"
    done = run_process(
        ["bash", "-c", f"{arena} 2>&1 | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=ASSETS,
        timeout_s=TIMEOUT_S,
    )
    first, code = done.stdout.splitlines()
    assert first.startswith("run directory: ")
    assert code == "143"
    assert done.stderr == ""
    assert "SIGHUP" in str(events(run, "run_stopped")[-1].data["reason"])
    assert "Traceback" not in (run / "logs" / "controller.log").read_text()
    check_left(run)


def test_a_terminal_that_is_closed_ends_the_run_as_a_hang_up_does(run: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "populations.commands.main", "launch", "--resume", "--run-dir", run],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ASSETS,
        start_new_session=True,
        preexec_fn=lambda: os.login_tty(0),
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    before = finished(run)

    def has_moved() -> bool:
        with contextlib.suppress(BlockingIOError):
            while os.read(ours, 65536):  # somebody has to, or it would wait
                pass
        return finished(run) > before

    try:
        wait_until(has_moved, timeout_s=TIMEOUT_S)
        os.close(ours)
        assert process.wait(timeout=TIMEOUT_S) == 143
    finally:
        process.kill()
        process.wait()
    assert state_of(run) == "stopped"
    assert "Traceback" not in (run / "logs" / "controller.log").read_text()
    check_left(run)


@pytest.mark.parametrize("view", ["--json", "--csv", None, "--help"])
def test_a_reader_of_results_that_goes_away_is_no_error(view: str | None, run: Path) -> None:
    arena = f"'{sys.executable}' -m populations.commands.main league '{run}' events {view or ''}"
    done = run_process(
        ["bash", "-c", f"{arena} | true; echo ${{PIPESTATUS[0]}}"], timeout_s=TIMEOUT_S
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
