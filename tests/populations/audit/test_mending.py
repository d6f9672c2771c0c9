"""Runs that a faulty learner destroyed under an older release go on after a repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from arena.checkpoints.manifest import WEIGHTS, checkpoint_key
from arena.types import MAX_AGENT_STEPS, PolicyId
from arena.wire.messages import Train
from populations.audit.mending import mend
from populations.audit.repair import repair_run
from populations.audit.verify import verify_run
from populations.config.message_sizes import check_sendable
from populations.controller.assignments import results
from populations.controller.state.events import AssignmentFinished, ControllerStarted
from populations.controller.state.state import make_state
from populations.records.rows import PolicyRow
from populations.storage.journal import Journal, JournalReader
from tests.populations.controller.simulated import World, make_world
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


def test_a_sound_run_is_left_as_it_is(run: SmallRun) -> None:
    tables = run.tables
    with JournalReader(run.run_dir / "journal.db") as reader:
        rows = reader.assignments()
    assert mend(tables, rows, verifies=lambda row: True, utc="now") == []


@pytest.mark.slow
def test_an_assignment_that_fits_no_frame_is_ended(run: SmallRun) -> None:
    row = run.opened(P0)
    assert isinstance(row.message, Train)
    huge = structs.replace(row.message, seed=1, opponents=row.message.opponents * 8000)
    run.put(replace(row, message=huge))
    run.journal.close()
    (event,) = repair_run(run.run_dir).events
    assert (event.kind, event.subject) == ("assignment_failed", str(row.assignment_id))
    assert "bytes, more than" in str(event.data["reason"])
    with JournalReader(run.run_dir / "journal.db") as reader:
        assert not reader.load().assignments
    assert verify_run(run.run_dir).faults == []


def bricked_world(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> World:
    """A run in which 2**62 agent steps of a policy were believed, as they were once."""
    monkeypatch.setattr(results, "find_inconsistency", lambda *args, **kwargs: None)
    world = make_world()
    journal.commit(world.committed)
    committed = len(world.committed)
    learner = world.join()
    for _ in range(40):
        world.now_s += 1.0
        event = world.work(learner)
        if event is None:
            break
        ((key, manifest),) = event.manifests.items() or [("", None)]
        if manifest is not None and manifest.agent_steps == 1000:
            lie = structs.replace(manifest, agent_steps=2**62)
            key = checkpoint_key(lie.policy, agent_steps=2**62, digest=lie.digest)
            (published,) = event.finished.checkpoints
            moved = structs.replace(
                published, checkpoint=structs.replace(published.checkpoint, key=key)
            )
            finished = structs.replace(event.finished, checkpoints=(moved,))
            event = AssignmentFinished(learner=learner, finished=finished, manifests={key: lie})
        world.handle(event)
        world.fit()
        world.explore()
        journal.commit(world.committed[committed:])
        committed = len(world.committed)
        if any(row.agent_steps > MAX_AGENT_STEPS for row in world.state.tables.ghosts.values()):
            break
    monkeypatch.undo()
    return world


def test_a_run_with_agent_steps_that_nobody_can_have_trained_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, []) as journal:
        old = bricked_world(monkeypatch, journal)
        with JournalReader(path) as reader:
            rows = reader.assignments()
        tables = journal.load()
        assert any(row.agent_steps == 2**62 for row in tables.policies.values())
        journal.commit(mend(tables, rows, verifies=lambda row: True, utc="now"))
        mended = journal.load()
    assert max(row.agent_steps for row in mended.policies.values()) <= MAX_AGENT_STEPS
    total = sum(row.agent_steps for row in mended.policies.values())
    assert mended.run.agent_steps == total
    state = make_state(old.state.config, old.setup, mended)
    world = World(state=state, setup=old.setup, learner=old.learner)
    world.handle(ControllerStarted())
    world.fit()
    world.join()
    for _ in range(60):
        for queue in world.given.values():
            for message in queue:
                check_sendable(message)
        world.step()
    assert world.state.tables.run.agent_steps > total


def test_a_policy_that_is_brought_back_keeps_its_lowered_counters(run: SmallRun) -> None:
    steps = 2 * MAX_AGENT_STEPS
    first, *_, last = run.checkpoints_of(P0)
    lie = replace(last, agent_steps=steps, state="corrupt")
    policy = run.tables.policies[P0]
    run.put(lie, replace(policy, state="quarantined", agent_steps=steps, checkpoint=lie.key))
    rows = mend(run.tables, [], verifies=lambda row: row.key != lie.key, utc="now")
    (mended,) = (row for row in rows if isinstance(row, PolicyRow) and row.policy == P0)
    assert mended.state == "active"
    newest = run.tables.checkpoints[str(mended.checkpoint)]
    assert first.agent_steps < mended.agent_steps == newest.agent_steps < MAX_AGENT_STEPS
