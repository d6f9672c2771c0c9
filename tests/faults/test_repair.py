"""A damaged journal: refused by everybody, and put right by `arena verify --repair`."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from msgspec.structs import replace

from arena.checkpoints.files import (
    decode_manifest,
    encode_manifest,
    file_records,
    read_manifest,
)
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS
from arena.checkpoints.publish import publish
from arena.config import NetworkConfig
from arena.errors import CheckpointCorrupt
from arena.types import Digest, PolicyId
from populations.audit.adoption import ADOPTED
from populations.audit.repair import Repair, repair_run
from populations.audit.verify import verify_run
from populations.choices import kinds
from populations.controller.server.run_directory import has_run
from populations.errors import JournalCorrupt, RunInUse, StorageError
from populations.records.rows import EventRow
from populations.records.tables import Tables
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal, JournalReader
from populations.storage.lock import RunLock
from tests.arena.checkpoints.sealed import sealed
from tests.faults.damage import flip_page, is_clean
from tests.faults.scenarios import reopened
from tests.populations.small_run import STEPS, SmallRun
from tests.support import exit_code, tables_of

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    """A small run that was backed up and has gone on since: 2 assignments and a ghost."""
    run = SmallRun(tmp_path)
    with run.journal:
        run.put(replace(run.tables.run, run=run.run_file.run))
        run.snapshot(run.checkpoints_of(P0)[0])
        run.journal.backup(tmp_path / BACKUP)
        run.train(P0)
        run.snapshot(run.train(P0))
        yield run


def damaged(run: SmallRun, page: int = 3) -> Tables:
    """The journal that is lost."""
    tables = run.tables
    run.journal.close()
    flip_page(run.run_dir / JOURNAL, page)
    return tables


def notes(repair: Repair, kind: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in repair.events if event.kind == kind]


def test_every_command_refuses_and_names_the_repair(
    run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(run)
    before = (run.run_dir / JOURNAL).read_bytes()
    for command in (("verify",), ("league",), ("launch", "--resume", "--run-dir")):
        assert exit_code(*command, run.run_dir) == 5
        written = capsys.readouterr()
        text = " ".join((written.out + written.err).split())
        assert f"`arena verify {run.run_dir} --repair`" in text
    assert (run.run_dir / JOURNAL).read_bytes() == before


def test_the_backup_and_what_manifests_show_since(run: SmallRun) -> None:
    lost = damaged(run)
    before = (run.run_dir / JOURNAL).read_bytes()
    repair = repair_run(run.run_dir)
    assert repair.restored
    assert repair.lost_assignments == 2
    (restored,) = notes(repair, "journal_restored")
    assert restored["assignments_finished"] == lost.run.assignments_finished - 2
    assert (run.run_dir / str(restored["damaged_journal"])).read_bytes() == before
    after = tables_of(run.run_dir)
    assert after.policies[P0] == lost.policies[P0] or after.policies[P0] == replace(
        lost.policies[P0], ghost_at=lost.policies[P0].agent_steps
    )
    assert after.policies[P1] == lost.policies[P1]
    assert after.run.agent_steps == lost.run.agent_steps
    assert after.run.next_assignment >= lost.run.next_assignment
    assert after.ghosts == lost.ghosts
    assert after.checkpoints.keys() == lost.checkpoints.keys()
    for key, row in after.checkpoints.items():
        known = lost.checkpoints[key]
        assert (row.digest, row.weights_digest, row.agent_steps, row.state) == (
            known.digest,
            known.weights_digest,
            known.agent_steps,
            known.state,
        )
    (adopted,) = notes(repair, ADOPTED)
    assert adopted["agent_steps"] - adopted["agent_steps_before"] == 2 * STEPS
    assert is_clean(run.run_dir)


def test_the_run_goes_on_from_there(run: SmallRun) -> None:
    damaged(run)
    repair_run(run.run_dir)
    with reopened(run.run_dir) as again:
        again.train(P0)
    assert is_clean(run.run_dir)


def test_doing_it_again_finds_nothing_to_do(run: SmallRun) -> None:
    damaged(run)
    repair_run(run.run_dir)
    before = (run.run_dir / JOURNAL).read_bytes()
    repair = repair_run(run.run_dir)
    assert (repair.restored, repair.events, repair.lost_assignments) == (False, [], 0)
    assert (run.run_dir / JOURNAL).read_bytes() == before


def test_a_journal_that_is_gone_is_restored_too(run: SmallRun) -> None:
    run.journal.close()
    (run.run_dir / JOURNAL).unlink()
    repair = repair_run(run.run_dir)
    # No row refers to more than the checkpoints on disk.
    assert (repair.restored, repair.lost_assignments) == (True, 2)
    assert is_clean(run.run_dir)


@pytest.mark.parametrize("page", range(1, 12))
def test_whichever_page_is_damaged(run: SmallRun, page: int) -> None:
    steps = damaged(run, page).run.agent_steps
    before = (run.run_dir / JOURNAL).read_bytes()
    try:
        with Journal.open(run.run_dir / JOURNAL) as journal:
            journal.load()
    except JournalCorrupt:
        assert repair_run(run.run_dir).restored
    else:
        repair_run(run.run_dir)
    assert tables_of(run.run_dir).run.agent_steps == steps
    assert is_clean(run.run_dir)
    assert before


def test_a_checkpoint_that_retention_has_removed_since_is_no_loss(run: SmallRun) -> None:
    for row in run.checkpoints_of(P0)[:3]:
        run.put(replace(row, state="deleted"))
        shutil.rmtree(run.run_dir / row.key)
    lost = damaged(run)
    repair_run(run.run_dir)
    after = tables_of(run.run_dir)
    assert {key: row.state for key, row in after.checkpoints.items()} == {
        key: row.state for key, row in lost.checkpoints.items()
    }
    assert is_clean(run.run_dir)


def test_open_assignments_of_the_backup_are_not_done(run: SmallRun) -> None:
    run.opened(P1)
    run.journal.backup(run.run_dir / BACKUP)
    damaged(run)
    repair = repair_run(run.run_dir)
    assert tables_of(run.run_dir).assignments == {}
    (failed,) = notes(repair, "assignment_failed")
    assert failed["failure"] == "repair"
    assert is_clean(run.run_dir)


def test_newer_checkpoints_that_are_damaged_are_set_aside(run: SmallRun) -> None:
    newest = run.checkpoints_of(P0)[-1]
    (run.run_dir / newest.key / WEIGHTS).write_bytes(b"damaged")
    lost = damaged(run)
    repair_run(run.run_dir)
    after = tables_of(run.run_dir)
    assert after.policies[P0].agent_steps == lost.policies[P0].agent_steps - STEPS
    assert newest.key not in after.checkpoints
    directory = run.run_dir / newest.key
    assert list(directory.parent.glob(f"corrupt-{directory.name}-*"))
    assert is_clean(run.run_dir)


def test_a_policy_with_nothing_left_is_quarantined(run: SmallRun) -> None:
    for row in run.checkpoints_of(P1):
        shutil.rmtree(run.run_dir / row.key)
    damaged(run)
    repair = repair_run(run.run_dir)
    assert tables_of(run.run_dir).policies[P1].state == "quarantined"
    assert notes(repair, "quarantined")
    assert is_clean(run.run_dir)


def contents(run_dir: Path) -> dict[Path, bytes]:
    """Every file but the lock, and those empty ones that SQLite's readers leave beside a WAL."""
    left = ("controller.lock", "journal.db-shm", "journal.db-wal")
    files = (path for path in run_dir.rglob("*") if path.is_file() and path.name not in left)
    return {path: path.read_bytes() for path in files}


def no_backup(run_dir: Path) -> None:
    (run_dir / BACKUP).unlink()


def damaged_backup(run_dir: Path) -> None:
    flip_page(run_dir / BACKUP)


def another_runs_backup(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / BACKUP)) as connection:
        connection.execute("UPDATE run SET run = 'another'")
        connection.commit()


@pytest.mark.parametrize("spoil", [no_backup, damaged_backup, another_runs_backup])
def test_without_a_usable_backup_nothing_is_changed(
    run: SmallRun, spoil: Callable[[Path], None]
) -> None:
    damaged(run)
    spoil(run.run_dir)
    before = contents(run.run_dir)
    with pytest.raises(StorageError, match="no usable backup"):
        repair_run(run.run_dir)
    assert contents(run.run_dir) == before
    assert has_run(run.run_dir)


def test_the_last_good_copy_does_not_give_way_to_a_damaged_one(run: SmallRun) -> None:
    before = (run.run_dir / BACKUP).read_bytes()
    run.journal.close()
    journal = Journal.open(run.run_dir / JOURNAL)
    flip_page(run.run_dir / JOURNAL)
    with pytest.raises(JournalCorrupt):
        journal.backup(run.run_dir / BACKUP)
    assert (run.run_dir / BACKUP).read_bytes() == before
    journal._connection.close()


def test_a_lost_archive_is_no_reason_to_replace_the_journal(run: SmallRun) -> None:
    written = run.archive()
    run.train(P0)
    before = run.tables
    run.journal.close()
    (run.run_dir / "archive" / written.file).unlink()
    assert not repair_run(run.run_dir).restored
    assert tables_of(run.run_dir) == before


@pytest.mark.parametrize("have_left", [False, True])
def test_a_backup_has_details_or_names_their_files(run: SmallRun, have_left: bool) -> None:
    """A file that it does not name is of no use, and the next start makes it again."""
    expected = run.tallies()
    if not have_left:
        run.journal.backup(run.run_dir / BACKUP)
    written = run.archive()
    if have_left:
        run.journal.backup(run.run_dir / BACKUP)
    damaged(run)
    assert repair_run(run.run_dir).restored
    with JournalReader(run.run_dir / JOURNAL) as reader:
        assert reader.tallies() == expected
        assert reader.archives() == ([written] if have_left else [])
    assert is_clean(run.run_dir)


def test_a_run_in_use_is_left_alone(run: SmallRun) -> None:
    damaged(run)
    with RunLock(run.run_dir), pytest.raises(RunInUse):
        repair_run(run.run_dir)


def test_damaged_checkpoints_and_ghosts_of_a_sound_journal(run: SmallRun) -> None:
    """Not only those that policies go on from; a ghost is made again where its source is left."""
    oldest, middle, *_ = run.checkpoints_of(P0)
    first, last = run.tables.ghosts.values()
    run.journal.close()
    (run.run_dir / middle.key / WEIGHTS).write_bytes(b"damaged")
    (run.run_dir / first.key / WEIGHTS).unlink()
    shutil.rmtree(run.run_dir / last.key)
    shutil.rmtree(run.run_dir / last.checkpoint)
    assert verify_run(run.run_dir).faults
    repair = repair_run(run.run_dir)
    assert not repair.restored
    after = tables_of(run.run_dir)
    assert after.checkpoints[middle.key].state == "corrupt"
    assert after.checkpoints[oldest.key].state == "present"
    assert not after.ghosts[first.player].corrupt, "made again"
    assert after.ghosts[last.player].corrupt
    assert notes(repair, "fell_back")
    assert is_clean(run.run_dir)


def test_the_command_says_what_was_done(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    damaged(run)
    assert exit_code("verify", run.run_dir, "--repair", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["faults"] == []
    assert document["repair"]["restored"]
    assert document["repair"]["lost_assignments_at_least"] == 2
    kinds = [event["kind"] for event in document["repair"]["events"]]
    assert kinds[:2] == ["journal_restored", ADOPTED]
    assert exit_code("verify", run.run_dir, "--repair") == 0
    assert re.search("nothing to repair", capsys.readouterr().out)


def planted(
    run: SmallRun,
    *,
    policy: PolicyId = P0,
    files: Mapping[str, bytes] | None = None,
    **changes: object,
) -> str:
    """Publish what a learner's key could: a checkpoint of a policy, as of its newest one."""
    newest = run.checkpoints_of(policy)[-1]
    source = run.run_dir / newest.key
    manifest = read_manifest(source)
    content = {name: (source / name).read_bytes() for name in manifest.files} | dict(files or {})
    changed = {"learner_updates": manifest.learner_updates + 1, "files": file_records(content)}
    other = replace(manifest, **{**changed, **changes})
    return publish(run.run_dir, manifest=other, files=content).key


def tensors(**named: list[float]) -> bytes:
    return bytes(
        safetensors.numpy.save({name: np.array(one, np.float32) for name, one in named.items()})
    )


PLANTED: dict[str, tuple[dict[str, object], str]] = {
    "agent steps": ({"agent_steps": 10**13}, "can have been trained"),
    "a generation": ({"generation": 2**31 - 1, "agent_steps": 10**4}, "can have come since"),
    "an environment": (
        {"agent_steps": 500, "environment_digest": Digest("a" * 64)},
        "environment_digest",
    ),
    "agents": ({"agent_steps": 500, "population_agents": ("other",)}, "population_agents"),
    "a network": (
        {"agent_steps": 500, "network": NetworkConfig(hidden_sizes=(3,))},
        "its network is",
    ),
    "no tensors": ({"agent_steps": 500, "files": {WEIGHTS: b"junk"}}, "not a file of tensors"),
    "NaN": (
        {"agent_steps": 500, "files": {WEIGHTS: tensors(weights=[1.0, math.nan])}},
        "is not finite float32",
    ),
    "shapes": (
        {"agent_steps": 500, "files": {WEIGHTS: tensors(weights=[1.0, 2.0, 3.0])}},
        "the tensors of its weights are not those of player",
    ),
    "names": (
        {"agent_steps": 500, "files": {WEIGHTS: tensors(other=[1.0, 2.0])}},
        "the tensors of its weights are not those of player",
    ),
    "an optimizer": (
        {"agent_steps": 500, "files": {OPTIMIZER: b"junk"}},
        "not a file of tensors",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), PLANTED.values(), ids=PLANTED)
def test_what_does_not_fit_the_run_is_not_adopted(
    run: SmallRun, changes: dict[str, object], reason: str
) -> None:
    key = planted(run, policy=P1, **changes)  # type: ignore[arg-type]
    run.note("noted", "")
    with_speed(run)
    lost = damaged(run)
    repair = repair_run(run.run_dir)
    after = tables_of(run.run_dir)
    assert after.policies[P1] == lost.policies[P1]
    assert key not in after.checkpoints
    refused = [note for note in notes(repair, "checkpoint_corrupt") if note["key"] == key]
    assert reason in str(refused[0]["reason"])
    directory = run.run_dir / key
    assert list(directory.parent.glob(f"corrupt-{directory.name}-*"))
    assert is_clean(run.run_dir)
    assert repair_run(run.run_dir).events == []


@pytest.mark.parametrize(("value", "is_adopted"), [(0.5, True), ("fast", False)])
def test_text_in_the_place_of_a_number_is_not_adopted(
    run: SmallRun, value: float | str, is_adopted: bool
) -> None:
    values = run.tables.policies[P1].hyperparameters
    number = next(name for name, kind in kinds(values).items() if kind is float)
    changed = {**values, number: value}
    key = planted(run, policy=P1, agent_steps=500, hyperparameters=changed)
    with_speed(run)
    damaged(run)
    repair_run(run.run_dir)
    assert (key in tables_of(run.run_dir).checkpoints) == is_adopted


def with_speed(run: SmallRun) -> None:
    """Let the backup know how fast policies train, and when it was made."""
    row = replace(run.tables.policies[P1], speed=1000.0)
    number = run.tables.num_events + 1
    now = datetime.now(UTC).isoformat()
    run.put(row, EventRow(sequence=number, time=now, kind="noted", subject="", data={}))
    run.journal.backup(run.run_dir / BACKUP)


def test_counters_that_no_manifest_can_have_are_none(run: SmallRun) -> None:
    manifest = read_manifest(run.run_dir / run.checkpoints_of(P1)[-1].key)
    for name, value in (
        ("agent_steps", 2**70),
        ("generation", 2**40),
        ("learner_updates", 2**60),
        ("agent_steps", -1),
    ):
        forged = sealed({**json.loads(encode_manifest(manifest)), name: value})
        with pytest.raises(CheckpointCorrupt, match=name):
            decode_manifest(forged, source=Path("x"))


def test_a_repair_that_leaves_faults_says_so(
    run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    written = run.archive()
    run.journal.close()
    path = run.run_dir / "archive" / written.file
    path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):
        assert exit_code("verify", run.run_dir, "--repair") == 5
        printed = " ".join(capsys.readouterr().out.split())
        assert "no repair can mend them" in printed
        assert "nothing to repair" not in printed
