"""A learner without the run's directory, and kills of the process that serves it checkpoints."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from arena.wire.keys import key_path
from tests.faults.runs import ASSETS, check_left, document, events, finished, launch
from tests.integration.conftest import ARENA
from tests.support import end_process, wait_until

pytestmark = [pytest.mark.xdist_group("processes")]

TIMEOUT_S = 60.0


def remote_learner(run: Path, elsewhere: Path) -> subprocess.Popen[str]:
    """A learner that has a copy of run.yaml and a key, and nothing else of the run."""
    live = json.loads((run / "status.json").read_text())
    elsewhere.mkdir()
    shutil.copy(run / "run.yaml", elsewhere)
    shutil.copy(key_path(run / "keys", "remote-0"), elsewhere)
    return subprocess.Popen(
        [
            *ARENA,
            *("learner", elsewhere / "run.yaml", "--connect", live["endpoint"]),
            *("--store", live["store_endpoint"], "--keys", elsewhere / "remote-0.key"),
            *("--cache", elsewhere / "cache", "--cache-mb", "1"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ASSETS,
    )


def finished_by(run: Path, prefix: str) -> int:
    """Assignments that learners whose ids begin so have finished."""
    answer = subprocess.run(
        [*ARENA, "league", run, "learners", "--json"], capture_output=True, check=True
    )
    rows = json.loads(answer.stdout)["learners"]
    return sum(row["assignments"] for row in rows if row["learner"].startswith(prefix))


@pytest.mark.parametrize(
    ("rules", "restarts"),
    [
        pytest.param("", False, id="no fault", marks=pytest.mark.slow),
        pytest.param(
            "store.before_piece=kill@15;store.before_publish=kill@3;store.published=kill@4",
            True,
            id="kills",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_learner_without_the_runs_directory_does_its_part(
    tmp_path: Path, rules: str, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as patch:
            if rules:
                patch.setenv("ARENA_TESTING", "1")
                patch.setenv("ARENA_FAILPOINTS", rules)
            process = launch(run, document(endpoint="tcp://127.0.0.1:*", remote_learners=1))
        stack.callback(end_process, process)
        wait_until(lambda: finished(run) >= 1, timeout_s=TIMEOUT_S)
        learner = remote_learner(run, tmp_path / "elsewhere")
        stack.callback(end_process, learner)

        wait_until(lambda: finished_by(run, "remote-0.") >= 12, timeout_s=TIMEOUT_S)
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        said = learner.communicate(timeout=TIMEOUT_S)[0]
        assert learner.returncode == 0, said
    log = (run / "logs" / "store.log").read_text()
    assert "Traceback" not in log
    restarted = (run / "logs" / "controller.log").read_text().count("it is started again")
    assert bool(restarted) == restarts
    blamed = ("learner_dismissed", "quarantined", "checkpoint_corrupt", "storage_full")
    assert events(run, *blamed) == []
    check_left(run)
