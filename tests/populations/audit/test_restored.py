"""What was called damaged and is intact comes back with a repair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import WEIGHTS
from arena.types import PolicyId
from populations.audit.repair import repair_run
from populations.audit.verify import verify_run
from populations.storage.journal import JournalReader
from tests.populations.small_run import SmallRun

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    with run.journal:
        run.put(replace(run.tables.run, run=run.run_file.run))
        run.snapshot(run.checkpoints_of(P0)[0])
        yield run


def test_intact_checkpoints_that_were_called_corrupt_come_back(run: SmallRun) -> None:
    tables = run.tables
    newest = {policy: run.checkpoints_of(policy)[-1].key for policy in (P0, P1)}
    truly = run.checkpoints_of(P1)[0]
    (run.run_dir / truly.key / WEIGHTS).write_bytes(b"damaged")
    run.put(
        replace(tables.run, state="failed", reason="no active policy is left"),
        *(replace(row, state="corrupt") for row in tables.checkpoints.values()),
        *(replace(row, corrupt=True) for row in tables.ghosts.values()),
        # They fell back as far as they could.
        *(
            replace(row, state="quarantined", checkpoint=run.checkpoints_of(row.policy)[0].key)
            for row in tables.policies.values()
        ),
    )
    before = run.tables
    run.journal.close()
    repair = repair_run(run.run_dir)
    with JournalReader(run.run_dir / "journal.db") as reader:
        after = reader.load()
    assert {row.policy: row.checkpoint for row in after.policies.values()} == newest
    assert {row.state for row in after.policies.values()} == {"active"}
    states = {key: row.state for key, row in after.checkpoints.items()}
    assert states == {key: "corrupt" if key == truly.key else "present" for key in states}
    assert not any(row.corrupt for row in after.ghosts.values())
    assert verify_run(run.run_dir).faults == []
    kinds = [event.kind for event in repair.events]
    assert kinds.count("checkpoint_restored") == len(before.checkpoints) - 1
    assert kinds.count("ghost_restored") == 1
    assert kinds.count("policy_restored") == 2
