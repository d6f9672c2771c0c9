from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.files import list_directories, verify_directory
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS, checkpoint_key
from arena.checkpoints.publish import publish, set_aside
from arena.types import Digest, PolicyId
from populations.errors import StorageError, WorkLost
from populations.records.rows import EventRow, RunRow
from populations.records.tables import Tables
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal, JournalReader
from populations.storage.loss import accepted_loss, find_loss, renew_status
from populations.storage.recovery import recover
from populations.storage.status import STATUS, committed, read_status, write_status
from tests.populations.rows import make_manifest
from tests.populations.small_run import STEPS, SmallRun
from tests.support import digests_of, flip

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


def names(run_dir: Path) -> list[str]:
    keys = [*list_directories(run_dir, "checkpoints"), *list_directories(run_dir, "ghosts")]
    return sorted(key.split("/", 1)[1] for key in keys)


def events(small_run: SmallRun, kind: str) -> list[EventRow]:
    with JournalReader(small_run.run_dir / "journal.db") as reader:
        return reader.events(kinds=[kind])


def test_a_sound_run_needs_nothing(small_run: SmallRun) -> None:
    small_run.snapshot(small_run.checkpoints_of(P0)[1])
    small_run.opened(P1)
    before = names(small_run.run_dir)
    assert recover(small_run.run_dir, small_run.tables) == []
    assert names(small_run.run_dir) == before


def test_what_was_never_recorded_goes_and_what_we_do_not_know_stays(small_run: SmallRun) -> None:
    row = small_run.checkpoints_of(P0)[0]
    directory = small_run.run_dir / row.key
    before = names(small_run.run_dir)
    shutil.copytree(directory, directory.with_name("000000000999-0123abcd"))
    shutil.copytree(directory, directory.with_name(f".tmp-{'0' * 32}"))
    shutil.copytree(directory, directory.with_name("my-notes"))
    assert recover(small_run.run_dir, small_run.tables) == []
    assert names(small_run.run_dir) == sorted([*before, "player/p000/checkpoints/my-notes"])


def test_unfinished_disk_work_is_done_again(small_run: SmallRun) -> None:
    first, second, _ = small_run.checkpoints_of(P0)
    ghost = small_run.snapshot(second, linked=False)
    small_run.put(replace(first, state="doomed"))
    rows = recover(small_run.run_dir, small_run.tables)
    assert rows == [replace(ghost, linked=True), replace(first, state="deleted")]
    assert not (small_run.run_dir / first.key).exists()
    verify_directory(small_run.run_dir / ghost.key, without=frozenset({OPTIMIZER}))
    small_run.put(*rows)
    assert recover(small_run.run_dir, small_run.tables) == []


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER, MANIFEST, "everything"])
def test_a_policy_falls_back_to_its_newest_checkpoint_that_verifies(
    small_run: SmallRun, name: str
) -> None:
    oldest, middle, newest = small_run.checkpoints_of(P0)
    before = small_run.tables
    flip(small_run.run_dir / middle.key / WEIGHTS)
    if name == "everything":
        shutil.rmtree(small_run.run_dir / newest.key)
    else:
        flip(small_run.run_dir / newest.key / name)
    small_run.put(*recover(small_run.run_dir, before, utc="now"))
    after = small_run.tables
    assert after.policies[P0] == replace(before.policies[P0], checkpoint=oldest.key)
    assert after.policies[P1] == before.policies[P1]
    states = {key: row.state for key, row in after.checkpoints.items()}
    assert (states[newest.key], states[middle.key], states[oldest.key]) == (
        "corrupt",
        "corrupt",
        "present",
    )
    assert not (small_run.run_dir / newest.key).exists()
    aside = [entry for entry in names(small_run.run_dir) if "/corrupt-" in entry]
    assert len(aside) == (1 if name == "everything" else 2)
    assert [event.data["key"] for event in events(small_run, "checkpoint_corrupt")] == [
        newest.key,
        middle.key,
    ]
    (fell_back,) = events(small_run, "fell_back")
    assert (fell_back.subject, fell_back.data["checkpoint"]) == (P0, oldest.key)
    assert recover(small_run.run_dir, after) == []


def test_without_any_checkpoint_left_it_is_quarantined_not_started_anew(
    small_run: SmallRun,
) -> None:
    for row in small_run.checkpoints_of(P0):
        flip(small_run.run_dir / row.key / WEIGHTS)
    before = small_run.tables.policies[P0]
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    after = small_run.tables.policies[P0]
    assert after == replace(before, state="quarantined")
    assert after.checkpoint is not None
    (quarantined,) = events(small_run, "quarantined")
    assert quarantined.subject == P0
    assert recover(small_run.run_dir, small_run.tables) == []


def test_after_an_exploit_the_donors_checkpoint_is_what_counts(small_run: SmallRun) -> None:
    own, donors = small_run.checkpoints_of(P0)[-1], small_run.checkpoints_of(P1)
    small_run.put(replace(small_run.tables.policies[P0], checkpoint=donors[-1].key, parent=P1))
    flip(small_run.run_dir / donors[-1].key / WEIGHTS)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    policies = small_run.tables.policies
    assert policies[P0].checkpoint == own.key
    assert policies[P1].checkpoint == donors[-2].key
    assert len(events(small_run, "checkpoint_corrupt")) == 1


def test_an_open_assignment_that_names_what_is_corrupt_is_failed(small_run: SmallRun) -> None:
    newest = small_run.checkpoints_of(P0)[-1]
    doomed, other = small_run.opened(P0), small_run.opened(P1)
    flip(small_run.run_dir / newest.key / OPTIMIZER)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    assert list(small_run.tables.assignments) == [other.assignment_id]
    (event,) = events(small_run, "assignment_failed")
    assert event.subject == str(doomed.assignment_id)
    assert event.data == {"failure": "checkpoint", "reason": f"corrupt: {newest.key}"}


def test_other_weights_under_the_same_name_are_corrupt(small_run: SmallRun) -> None:
    _, middle, newest = small_run.checkpoints_of(P0)
    shutil.rmtree(small_run.run_dir / newest.key)
    shutil.copytree(small_run.run_dir / middle.key, small_run.run_dir / newest.key)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    assert small_run.tables.policies[P0].checkpoint == middle.key


def test_a_disk_that_refuses_ends_the_recovery_and_corrupts_nothing(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    before = small_run.tables
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StorageError, match="Too many"):
            recover(small_run.run_dir, before)
    assert recover(small_run.run_dir, small_run.tables) == []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    with run.journal:
        run.note("ratings_fitted", "player")
        yield run


def status_of(run: SmallRun, **more: int) -> None:
    """Write the status of a controller that has committed so much more than the journal has."""
    counts = {name: count + more.get(name, 0) for name, count in committed(run.tables).items()}
    write_status(run.run_dir, {"run": "r", **counts})


def publish_after(run: SmallRun, policy: PolicyId, *, agent_steps: int, parent: str | None) -> str:
    """Publish a checkpoint that nothing records; return its digest."""
    files = {WEIGHTS: f"w {policy} {agent_steps}".encode(), OPTIMIZER: b"o"}
    digest = None if parent is None else Digest(parent)
    manifest = make_manifest(
        policy, files, agent_steps=agent_steps, learner_updates=9, parent=digest
    )
    return publish(run.run_dir, manifest=manifest, files=files).digest


def test_a_run_with_all_that_it_counted_has_lost_nothing(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        status_of(run)
    before = digests_of(tmp_path)
    assert find_loss(tmp_path) is None
    assert accepted_loss(tmp_path, accept=False) is None
    renew_status(tmp_path)
    # Nothing is written, not even a file of SQLite beside the journal.
    assert digests_of(tmp_path) == before
    assert not list(tmp_path.glob(f"{JOURNAL}-*"))


def test_what_status_has_counted_and_the_journal_has_not_is_lost(run: SmallRun) -> None:
    status_of(run, agent_steps=1300, matches=7, events=2)
    loss = find_loss(run.run_dir)
    assert loss is not None
    assert dict(loss.counts) == {"agent_steps": 1300, "matches": 7, "events": 2}
    assert str(loss) == (
        "acknowledged work is lost, at least 1,300 agent steps, 7 matches, 2 events: status.json "
        "has counted 1,900 agent steps (the journal 1,300 less), 37 matches (the journal 7 less), "
        "3 events (the journal 2 less)"
    )
    with pytest.raises(WorkLost, match=r"Nothing was written: .*--accept-loss.*accept_loss=True"):
        accepted_loss(run.run_dir, accept=False)
    assert accepted_loss(run.run_dir, accept=True) == loss
    renew_status(run.run_dir)
    assert read_status(run.run_dir) == {"run": "r", "epoch": 0, **committed(run.tables)}
    assert find_loss(run.run_dir) is None


@pytest.mark.parametrize("damage", ["another run's", "no number", "beyond belief", "gone"])
def test_a_status_that_says_nothing_about_this_run_is_no_sign(run: SmallRun, damage: str) -> None:
    counts = committed(run.tables)
    match damage:
        case "another run's":
            write_status(run.run_dir, {"run": "s", **dict.fromkeys(counts, 10**6)})
        case "no number":
            write_status(run.run_dir, {"run": "r", **dict.fromkeys(counts, "many")})
        case "beyond belief":
            write_status(run.run_dir, {"run": "r", **dict.fromkeys(counts, 10**17)})
        case _:
            (run.run_dir / STATUS).unlink(missing_ok=True)
    assert find_loss(run.run_dir) is None


def test_a_journal_behind_its_status_was_an_older_copy(run: SmallRun, tmp_path: Path) -> None:
    run.journal.backup(run.run_dir / BACKUP)
    for _ in range(3):
        run.train(P0)
    status_of(run)
    ignored = shutil.ignore_patterns(f"{JOURNAL}-*", "older")
    older = shutil.copytree(run.run_dir, tmp_path / "older", ignore=ignored)
    shutil.copyfile(run.run_dir / BACKUP, older / JOURNAL)
    loss = find_loss(older)
    assert loss is not None
    assert loss.counts["agent_steps"] == 3 * STEPS
    assert loss.counts["assignments_finished"] == 3


def read_from(run_dir: Path) -> Tables:
    with JournalReader(run_dir / JOURNAL) as reader:
        return reader.load()


def test_a_flipped_bit_anywhere_in_a_killed_runs_wal_loses_nothing_silently(
    run: SmallRun, tmp_path: Path
) -> None:
    for _ in range(10):
        run.train(P0)
    # A copy of an open journal is what a kill leaves. Without a status the last second may be
    # missing.
    killed = shutil.copytree(
        run.run_dir, tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm", "killed")
    )
    assert find_loss(killed) is None
    complete = read_from(killed)
    wal = (killed / f"{JOURNAL}-wal").read_bytes()
    rng, num_lost = random.Random(1), 0
    for place in (5, 17, *(rng.randrange(32, len(wal)) for _ in range(20))):
        damaged = bytearray(wal)
        damaged[place] ^= 1 << rng.randrange(8)
        (killed / f"{JOURNAL}-shm").unlink(missing_ok=True)
        (killed / f"{JOURNAL}-wal").write_bytes(damaged)
        before = digests_of(killed)
        loss = find_loss(killed)
        assert (loss is None) == (read_from(killed) == complete), place
        num_lost += loss is not None
        assert digests_of(killed) == before
    assert num_lost > 10


def test_a_recorded_checkpoint_without_a_directory_is_lost_until_that_is_recorded(
    run: SmallRun,
) -> None:
    *_, parent, newest = run.checkpoints_of(P0)
    shutil.rmtree(run.run_dir / newest.key)
    loss = find_loss(run.run_dir)
    assert loss is not None
    assert loss.checkpoints == (newest.key,)
    assert dict(loss.counts) == {"agent_steps": STEPS}
    assert f"{newest.key}: recorded, and missing" in str(loss)
    # An older checkpoint was acknowledged, too, and is a fallback.
    oldest = run.checkpoints_of(P1)[0]
    shutil.rmtree(run.run_dir / oldest.key)
    loss = find_loss(run.run_dir)
    assert loss is not None
    assert set(loss.checkpoints) == {newest.key, oldest.key}
    run.put(*recover(run.run_dir, run.tables, utc="now"))
    assert run.tables.policies[P0].checkpoint == parent.key
    assert run.tables.checkpoints[oldest.key].state == "corrupt"
    assert find_loss(run.run_dir) is None


def test_a_checkpoint_that_is_set_aside_or_was_to_be_removed_is_no_loss(run: SmallRun) -> None:
    aside, doomed, _ = run.checkpoints_of(P0)
    # As after a kill, the directory was renamed before the row was written.
    set_aside(run.run_dir, aside.key)
    run.put(replace(doomed, state="doomed"))
    shutil.rmtree(run.run_dir / doomed.key)
    assert find_loss(run.run_dir) is None


def test_a_ghost_is_lost_with_its_checkpoint_alone(run: SmallRun) -> None:
    source = run.checkpoints_of(P0)[0]
    ghost = run.snapshot(source)
    shutil.rmtree(run.run_dir / ghost.key)
    assert find_loss(run.run_dir) is None
    run.put(replace(source, state="deleted"))
    shutil.rmtree(run.run_dir / source.key)
    loss = find_loss(run.run_dir)
    assert loss is not None
    assert loss.checkpoints == (ghost.key,)
    run.put(*recover(run.run_dir, run.tables, utc="now"))
    assert run.tables.ghosts[ghost.player].corrupt
    assert find_loss(run.run_dir) is None


def test_an_unrecorded_checkpoint_was_recorded_if_another_one_was_trained_from_it(
    run: SmallRun,
) -> None:
    current = run.checkpoints_of(P0)[-1]
    # A kill leaves these directories, also several attempts and those of other policies.
    first = publish_after(run, P0, agent_steps=400, parent=current.digest)
    publish_after(run, P0, agent_steps=401, parent=current.digest)
    publish_after(run, P1, agent_steps=400, parent=current.digest)
    assert find_loss(run.run_dir) is None
    publish_after(run, P0, agent_steps=500, parent=first)
    loss = find_loss(run.run_dir)
    assert loss is not None
    assert loss.checkpoints == (checkpoint_key(P0, agent_steps=400, digest=Digest(first)),)
    assert dict(loss.counts) == {"agent_steps": 400 - 3 * STEPS}


def test_a_journal_that_is_gone_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    assert find_loss(tmp_path) is None


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A journal whose WAL has lost a byte of its last commit, as if its writer had been killed."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    with Journal.create(path, [RunRow(run="r")]) as journal:
        for matches in range(3):
            journal.commit([RunRow(run="r", matches=matches)])
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{copy}{end}")
    with open(f"{copy}-wal", "r+b") as wal:
        wal.seek(-100, os.SEEK_END)
        wal.write(b"\xff")
    return copy


def num_lost(path: Path) -> int:
    with JournalReader(path) as reader:
        reader.load()
        return reader.unreadable_commits()


def test_the_mark_of_a_last_commit_counts_if_the_machine_has_run_since(torn: Path) -> None:
    assert num_lost(torn) == 1
    os.utime(f"{torn}-wal", (0, 0))
    assert num_lost(torn) == 0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux counts sleep apart")
def test_sleep_of_the_machine_is_no_power_failure(
    torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file was written before a long sleep, which the monotonic clock does not count.
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    os.utime(f"{torn}-wal", (time.time() - 1.0,) * 2)
    assert num_lost(torn) == 1
