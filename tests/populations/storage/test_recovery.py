from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.files import list_directories, verify_directory
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS
from arena.types import PolicyId
from populations.errors import StorageError
from populations.records.rows import EventRow
from populations.storage.journal import JournalReader
from populations.storage.recovery import recover
from tests.populations.small_run import SmallRun

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


def names(run_dir: Path) -> list[str]:
    keys = [*list_directories(run_dir, "checkpoints"), *list_directories(run_dir, "ghosts")]
    return sorted(key.split("/", 1)[1] for key in keys)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


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
    damage(small_run.run_dir / middle.key / WEIGHTS)
    if name == "everything":
        shutil.rmtree(small_run.run_dir / newest.key)
    else:
        damage(small_run.run_dir / newest.key / name)
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
        damage(small_run.run_dir / row.key / WEIGHTS)
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
    damage(small_run.run_dir / donors[-1].key / WEIGHTS)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    policies = small_run.tables.policies
    assert policies[P0].checkpoint == own.key
    assert policies[P1].checkpoint == donors[-2].key
    assert len(events(small_run, "checkpoint_corrupt")) == 1


def test_an_open_assignment_that_names_what_is_corrupt_is_failed(small_run: SmallRun) -> None:
    newest = small_run.checkpoints_of(P0)[-1]
    doomed, other = small_run.opened(P0), small_run.opened(P1)
    damage(small_run.run_dir / newest.key / OPTIMIZER)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    assert list(small_run.tables.assignments) == [other.assignment_id]
    (event,) = events(small_run, "assignment_failed")
    assert event.subject == str(doomed.assignment_id)


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
