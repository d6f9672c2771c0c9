"""Whose fault it is, in real runs: what follows no policy changes none of them."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import combinations, product
from pathlib import Path

import pytest

from arena.checkpoints.files import DIRECTORY_NAME, list_directories
from arena.checkpoints.manifest import WEIGHTS
from arena.learners.state import EXIT_AGAIN
from tests.faults.runs import learners_of
from tests.faults.test_storage_runs import fill, small_disk
from tests.faults.test_store_process import end, finished_by, remote_learner
from tests.faults.troubled_runs import WAIT_S, WORKED, Run, check_policies, resume, running, suffer
from tests.faults.troubles import TROUBLES, Setting, Trouble
from tests.support import wait_until

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
        # It must read its checkpoints from the disk again, so it is stopped, and killed after.
        (learner,) = learners_of(run.directory)
        learner.suspend()
        wait_until(lambda: _is_all_recorded(run), timeout_s=5.0)
        damaged = {str(row.checkpoint) for row in run.tables().policies.values()}
        for key in damaged:
            _flip(run.directory / key / WEIGHTS)
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
        # Where it fell back to, the next one begins.
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


def _flip(path: Path) -> None:
    """Change a bit in a file of its own: ghosts are links to the old one."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


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
        stack.callback(end, learner)
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
