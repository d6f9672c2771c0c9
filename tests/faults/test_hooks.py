"""Hooks of a run whose controller is killed: nothing of them is left, and no event is missed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from experiments.faults.killing import TINY, killed_run
from populations.storage.journal import JournalReader
from tests.faults.outcomes import differences, outcome
from tests.faults.runs import ASSETS, check_left, document, events, finished, launch
from tests.integration.conftest import ARENA
from tests.support import kept_events, run_process, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

LIMIT_S = 120.0
SLEEP = "3456.7"


def hooks_of(run: Path) -> list[psutil.Process]:
    """The processes of hooks and what they started: all that is below the guards of their log."""
    log = str(run / "logs" / "hooks.log")
    guards = [one for one in psutil.process_iter(["cmdline"]) if log in (one.info["cmdline"] or [])]
    found = set()
    for guard in guards:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= set(guard.children(recursive=True))
    return [one for one in found - set(guards) if one.is_running()]


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=LIMIT_S)


def test_over_kills_every_event_is_handed_over_and_twice_only_around_a_kill(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    process = launch(run, document(hooks={"on_event": ["hooked:keep"]}))
    for kills in range(2):
        before = len(kept_events(run))
        wait_until(lambda: len(kept_events(run)) > before + 5, timeout_s=LIMIT_S)  # noqa: B023
        kill(process)
        wait_until(lambda: not hooks_of(run), timeout_s=2.0)
        process = launch(run, None)
        assert kills == 0 or len(set(kept_events(run))) > before
    wait_until(lambda: finished(run) > 0 and len(hooks_of(run)) == 1, timeout_s=LIMIT_S)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    with JournalReader(run / "journal.db") as reader:
        committed = [row.sequence for row in reader.events()]
        assert reader.events(kinds=["run_stopped"])
    # The last event is included, because the end of the run waits for hooks.
    assert sorted(set(kept_events(run))) == committed
    assert len(kept_events(run)) <= len(committed) + 2, (
        "at most one call for each kill is made again"
    )
    check_left(run)
    assert not hooks_of(run)


def test_hooks_that_fail_and_take_long_change_nothing_of_a_deterministic_run(
    tmp_path: Path,
) -> None:
    hooks = "hooks={on_event: [[sh, -c, 'sleep 0.05; exit 3']], queue: 5, time_limit_s: 2}"
    outcomes = []
    for name, more in (("without", ()), ("hooked", (hooks,))):
        with killed_run(tmp_path, name=name) as run:
            run.start("rock_paper_scissors", *TINY, *more)
            assert run.wait(timeout_s=LIMIT_S) == 0, run.log.read_text()
            outcomes.append(outcome(run.run))
    names = {str(row.data["name"]) for row in events(tmp_path / "hooked", "alert")}
    assert {"hook_failed", "hooks_behind"} <= names
    assert differences(*outcomes) == []


def test_a_killed_controllers_command_ends_with_it_and_the_run_is_free(tmp_path: Path) -> None:
    run = tmp_path / "run"
    # The process leaves its parent, as a background job does.
    command = ["sh", "-c", f"sleep {SLEEP} & sleep {SLEEP}"]
    process = launch(run, document(hooks={"on_ghost": [command]}))
    wait_until(lambda: len(hooks_of(run)) == 4, timeout_s=LIMIT_S)
    kill(process)
    wait_until(lambda: not hooks_of(run), timeout_s=2.0)
    # The lock is free, so the run resumes at once, now without hooks.
    resumed = run_process(
        [
            *(*ARENA, "launch", "--resume", "--run-dir", str(run)),
            *("hooks.on_ghost=[]", "evaluation.share=0", "stop.agent_steps=1"),
        ],
        cwd=ASSETS,
        timeout_s=LIMIT_S,
    )
    assert resumed.returncode == 0, resumed.stderr
    changed = {key for row in events(run, "configuration_changed") for key in row.data}
    assert "hooks.on_ghost" in changed
    assert not (run / "hooks.json").exists()
    check_left(run)
