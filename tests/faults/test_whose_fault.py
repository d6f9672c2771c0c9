"""Whose fault it is, in real runs: what follows no policy changes none of them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations, product
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.files import DIRECTORY_NAME, list_directories
from arena.checkpoints.manifest import WEIGHTS
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
    learners_of,
    served,
)
from tests.faults.test_storage_runs import fill, small_disk
from tests.faults.test_store_process import finished_by, remote_learner
from tests.faults.troubled_runs import WAIT_S, WORKED, Run, check_policies, resume, running, suffer
from tests.faults.troubles import TROUBLES, Setting, Trouble
from tests.integration.conftest import ARENA
from tests.support import end_process, flip, run_process, wait_until

HERE = pytest.mark.timeout(480)


def test_settings_are_covered_in_pairs() -> None:
    values = {
        "policies": (1, 2, 4),
        "learners": (1, 2),
        "cooperates": (False, True),
        "workers": (0, 1),
    }
    settings = [trouble.setting for trouble in TROUBLES]
    for one, other in combinations(values, 2):
        met = {(getattr(setting, one), getattr(setting, other)) for setting in settings}
        assert met == set(product(values[one], values[other])), (one, other)


@HERE
@pytest.mark.parametrize(
    "trouble", TROUBLES, ids=lambda trouble: f"{trouble.name}{'_here' * bool(trouble.whom)}"
)
def test_a_trouble_of_nobodys_changes_no_policy(trouble: Trouble, tmp_path: Path) -> None:
    config = trouble.setting.document(**trouble.sections)
    with running(tmp_path, config) as run:
        suffer(run, trouble)
        check_policies(run)
        resume(run)
        check_policies(run)


@HERE
def test_flipped_checkpoints_are_set_aside_and_their_policies_go_on_from_older_ones(
    tmp_path: Path,
) -> None:
    setting = Setting(policies=2, learners=1, cooperates=False, workers=1)
    with running(tmp_path, setting.document()) as run:
        before = run.tables()
        # The learner must read its checkpoints from the disk again, so it is suspended and then
        # killed.
        (learner,) = learners_of(run.directory)
        learner.suspend()
        wait_until(lambda: _is_all_recorded(run), timeout_s=5.0)
        damaged = {str(row.checkpoint) for row in run.tables().policies.values()}
        for key in damaged:
            flip(run.directory / key / WEIGHTS)
        learner.kill()
        run.wait_for(lambda: len(run.events("fell_back")) >= len(damaged))
        fell = {row.subject: str(row.data["checkpoint"]) for row in run.events("fell_back")}
        assert set(fell) == set(before.policies)
        known = run.tables().checkpoints
        parents = {known[key].weights_digest for key in fell.values()}
        run.wait_for(run.have_trained(since=len(run.trained())))
        run.stop()
        check_policies(run)
        tables = run.tables()
        for event in run.events("checkpoint_corrupt"):
            assert event.data["key"] in damaged
            assert tables.checkpoints[str(event.data["key"])].state == "corrupt"
            assert "sha256" in str(event.data["reason"])
        # The next checkpoint descends from the one that the policy fell back to.
        assert parents <= {row.parent for row in tables.checkpoints.values()}
        for policy, row in tables.policies.items():
            assert row.agent_steps >= before.policies[policy].agent_steps
        resume(run)
        check_policies(run)


def _is_all_recorded(run: Run) -> bool:
    """Whether nothing is under way between a learner's publication and the journal."""
    known = run.tables().checkpoints
    keys = list_directories(run.directory, "checkpoints")
    return all(key in known for key in keys if DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]))


@HERE
def test_a_full_disk_of_one_learner_is_its_own_trouble(tmp_path: Path) -> None:
    setting = Setting(policies=2, learners=1, cooperates=True, workers=0)
    config = setting.document(endpoint="tcp://127.0.0.1:*", remote_learners=1)
    with (
        small_disk(tmp_path / "disk", "size=4m") as disk,
        running(tmp_path, config) as run,
        ExitStack() as stack,
    ):
        learner = remote_learner(run.directory, disk / "elsewhere")
        stack.callback(end_process, learner)
        run.wait_for(lambda: finished_by(run.directory, "remote-0") >= WORKED)
        fill(disk / "ballast")
        run.wait_for(lambda: run.events("learner_dismissed"))
        said = learner.communicate(timeout=WAIT_S)[0]
        assert learner.returncode == EXIT_AGAIN, said
        run.wait_for(run.have_trained(since=len(run.trained())))
        assert "No space left on device" in run.text
        assert not run.events("storage_full", "paused")
        run.stop()
        check_policies(run)
        resume(run)
        check_policies(run)


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
    # Each learner may join again once the reported problem is fixed.
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
        # A directory without a store id would fetch checkpoints, so this one is of another run.
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
