"""Acknowledged work that is lost, from the command line: said, refused, accepted, repaired."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from populations.storage.database import BACKUP, JOURNAL
from populations.storage.status import committed, read_status
from tests.faults.runs import END_S, document, events, finished, launch, learners_of
from tests.support import digests_of, exit_code, tables_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.xdist_group("processes")]

main = importlib.import_module("populations.commands.main").main


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run whose controller was killed after some commits."""
    run = tmp_path_factory.mktemp("killed") / "run"
    process = launch(run, document())
    wait_until(lambda: finished(run) >= 6, timeout_s=END_S)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=END_S)
    wait_until(lambda: not learners_of(run), timeout_s=10.0)
    return run


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> Path:
    """A copy, as nobody has opened it yet."""
    return shutil.copytree(killed, tmp_path / "run", ignore=shutil.ignore_patterns("*-shm"))


def resume(run: Path, *more: str) -> tuple[int, str]:
    """Go on for a moment; return the exit code and what was said."""
    process = launch(run, None, more=("stop.agent_steps=1", *more))
    _, said = process.communicate(timeout=END_S)
    return process.returncode, said


def flip_in_wal(run: Path) -> None:
    path = run / f"{JOURNAL}-wal"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def remove_a_checkpoint(run: Path) -> None:
    tables = tables_of(run)
    policy = max(tables.policies.values(), key=lambda row: row.agent_steps)
    shutil.rmtree(run / str(policy.checkpoint))
    (run / f"{JOURNAL}-shm").unlink(missing_ok=True)


def bring_back_an_older_journal(run: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (run / f"{JOURNAL}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(run / BACKUP, run / JOURNAL)


DAMAGE = [flip_in_wal, remove_a_checkpoint, bring_back_an_older_journal]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_loss_ends_a_resume_before_it_writes_until_it_is_accepted(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run)
    before = digests_of(run)
    code, said = resume(run)
    assert code == 5, said
    assert "acknowledged work is lost, at least " in said
    assert "--accept-loss" in said
    after = digests_of(run)
    # The lock file keeps the text of its last holder, which was killed.
    assert {**after, "controller.lock": ""} == {**before, "controller.lock": ""}
    assert exit_code("verify", run) == 5
    assert exit_code("rewind", f"{run}:player/p000@1") == 5
    code, said = resume(run, "--accept-loss")
    assert code == 0, said
    assert "acknowledged work is lost" in said
    (lost,) = events(run, "work_lost")
    assert "reason" in lost.data
    assert exit_code("verify", run) == 0
    code, said = resume(run, "stop.agent_steps=2")
    assert code == 0, said


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_repair_says_the_same_and_the_next_resume_is_content(
    run: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run)
    assert exit_code("verify", run, "--repair", "--json") == 0
    repair = json.loads(capsys.readouterr().out)["repair"]
    assert repair["lost"]["reason"]
    status, counts = read_status(run) or {}, committed(tables_of(run))
    assert all(int(str(status[name])) <= count for name, count in counts.items())
    code, said = resume(run)
    assert code == 0, said
    assert "lost" not in said


def test_a_kill_alone_is_no_loss(run: Path) -> None:
    assert exit_code("verify", run) == 0
    code, said = resume(run)
    assert code == 0, said
    assert events(run, "work_lost") == []
