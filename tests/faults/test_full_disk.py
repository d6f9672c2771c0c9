"""A disk that is full, read-only or failing: nobody is blamed, and the run goes on by itself."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from arena.errors import DiskRefused
from arena.failpoints import armed
from arena.learners.inline import start_inline_learner
from arena.learners.loop import Progress
from arena.types import AssignmentId, LearnerId
from arena.wire.codec import decode, encode
from arena.wire.in_memory import InMemoryHub
from arena.wire.messages import (
    Assignment,
    Failed,
    Finished,
    FromController,
    Goodbye,
    Header,
    Heartbeat,
    Message,
    Train,
    Welcome,
)
from populations.controller.server.journal_upkeep import STORAGE_GRACE_S
from populations.controller.server.live_status import alerts
from populations.controller.server.server import Server
from populations.controller.state.events import (
    AssignmentFailed,
    Command,
    GhostsLinked,
    LinkGhosts,
    Ticked,
)
from populations.errors import StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.storage.lock import RunLock
from populations.storage.status import read_status, write_status
from populations.views.questions.inspection import Inspection
from populations.views.run import status_document
from tests.arena.checkpoints.conftest import MakePublishable
from tests.arena.checkpoints.conftest import make_publishable as make_publishable
from tests.arena.learners.stub import TIMEOUT_S, ControllerEnd, StubWork, assignment, setup
from tests.arena.wire.examples import RUN
from tests.populations.controller.server.test_server import (
    LEARNER,
    NoLauncher,
    RecordingJournal,
    ScriptedTransport,
)
from tests.populations.controller.simulated import World, make_world, open_ids
from tests.populations.small_run import SmallRun

REASON = "populations/player: No space left on device"


def fail(world: World, *, kind: str, key: str | None = None) -> None:
    """Everything that was given out fails, until nothing more is."""
    while given(world):
        _fail_given(world, kind=kind, key=key)


def _fail_given(world: World, *, kind: str, key: str | None) -> None:
    for learner, known in world.state.crew.learners.items():
        world.given[learner].clear()
        for held in list(known.held):
            failed = Failed(
                assignment_id=held.assignment_id,
                attempt=held.attempt,
                kind=kind,
                reason=REASON,
                key=key,
            )
            world.handle(AssignmentFailed(learner=learner, failed=failed))


def pass_time(world: World, seconds: float) -> None:
    world.now_s += seconds
    for learner in world.state.crew.learners:
        world.beat(learner)
    world.handle(Ticked())


def given(world: World) -> list[AssignmentId]:
    return [
        held.assignment_id for known in world.state.crew.learners.values() for held in known.held
    ]


def test_a_refusal_of_the_disk_can_be_sent() -> None:
    failed = Failed(assignment_id=AssignmentId(1), attempt=1, kind="storage", reason=REASON)
    header = Header(run="run", epoch=1, learner=LEARNER, sequence=1)
    assert decode(encode(header, failed)) == (header, failed)


def test_without_room_one_try_at_a_time_is_made_and_nobody_is_blamed() -> None:
    world = make_world(joined=2)
    assert len(given(world)) == 4
    fail(world, kind="storage")
    before = open_ids(world)
    # Two learners failed to write before the disk was known to be full.
    assert {row.data["retry_in_s"] for row in world.events("storage_full")} == {1.0}
    assert not world.events("learner_dismissed")
    wait_s = 1.0
    for _ in range(8):
        pass_time(world, wait_s - 0.01)
        assert given(world) == []
        pass_time(world, 0.02)
        (tried,) = given(world)
        assert tried in before, "one of those that were refused, as it was"
        pass_time(world, 0.5)
        assert given(world) == [tried], "one at a time"
        fail(world, kind="storage")
        wait_s = min(2.0 * wait_s, 60.0)
        assert world.events("storage_full")[-1].data["retry_in_s"] == wait_s
    (alert,) = alerts(world.state.blame.pause, world.state.measured, now_s=world.now_s)
    assert isinstance(alert, Mapping)
    assert alert["name"] == "storage_full"
    assert REASON in str(alert["what"])
    assert not world.events("quarantined")


def test_with_room_again_the_run_goes_on_by_itself() -> None:
    world = make_world(joined=2)
    fail(world, kind="storage")
    pass_time(world, 1.0)
    assert len(given(world)) == 1
    world.step()
    (recovered,) = world.events("storage_recovered")
    assert recovered.data == {"refusals": len(world.events("storage_full")), "paused_s": 2.0}
    assert len(given(world)) > 1
    assert alerts(world.state.blame.pause, world.state.measured, now_s=world.now_s) == []
    world.run()
    assert world.state.tables.run.state == "finished"
    seeds = {row.message.seed for row in world.state.tables.assignments.values()}
    assert not seeds, "all that was refused was done again"


def test_a_ghost_without_room_is_linked_later_and_is_not_taken_for_corrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = iter([False, False])
    carry_out = World.carry_out

    def refusing(world: World, command: Command) -> None:
        if isinstance(command, LinkGhosts) and not next(rooms, True):
            players = tuple(ghost.player for ghost in command.ghosts)
            world.handle(GhostsLinked(players=(), refused=players, reason=REASON))
        else:
            carry_out(world, command)

    monkeypatch.setattr(World, "carry_out", refusing)
    world = make_world(joined=1)
    while world.state.blame.pause is None:
        world.step()
    (key,) = {ghost.key for ghost in world.state.tables.ghosts.values() if not ghost.linked}
    # The checkpoint was named in an assignment sent before its damage was known.
    fail(world, kind="checkpoint", key=key)
    pass_time(world, 1.0)
    assert given(world) == [], "the second try failed too"
    pass_time(world, 2.0)
    (_,) = world.events("storage_recovered")
    assert world.linked == [
        ghost.player for ghost in world.state.tables.ghosts.values() if ghost.linked
    ]
    assert not world.events("ghost_corrupt")
    world.run()
    assert all(ghost.linked for ghost in world.state.tables.ghosts.values())


class FullJournal(RecordingJournal):
    """Has no room for some time for what holds a learner's Hello."""

    def __init__(self, log: list[object], *, num_refusals: float) -> None:
        super().__init__(log, full_at="learner_joined")
        self.num_refusals = num_refusals
        self.refused: list[Sequence[Row]] = []

    def commit(self, rows: Sequence[Row]) -> None:
        try:
            super().commit(rows)
        except StorageError as error:
            self.refused.append(rows)
            if len(self.refused) > self.num_refusals:
                self.log.extend(rows)
                return
            raise StorageUnavailable("database or disk is full") from error


class Enough(Exception):
    """Ends a server that would go on."""


def serve(
    run_dir: Path, journal: FullJournal, *, on_wait: Callable[[Server], None] = lambda server: None
) -> float:
    """Run a server until it has given out work; how long it has waited, in seconds."""
    world = make_world()
    clock = [0.0]

    def wait(seconds: float) -> None:
        assert not [entry for entry in journal.log if not isinstance(entry, Row)], "sent too early"
        clock[0] += seconds
        on_wait(server)

    class Transport(ScriptedTransport):
        def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
            if any(isinstance(entry, Train) for entry in self.log):
                raise Enough
            return super().receive(timeout_s)

    server = Server(
        run_dir=run_dir,
        state=world.state,
        journal=journal,
        transport=Transport(journal.log, world.hello(LEARNER)),
        launcher=NoLauncher(),
        clock=lambda: clock[0],
        wait=wait,
    )
    with pytest.raises(Enough):
        server.run()
    return clock[0]


def test_a_journal_without_room_is_waited_for_with_the_very_same_rows(tmp_path: Path) -> None:
    journal = FullJournal([], num_refusals=10)
    shown: list[object] = []

    def look(server: Server) -> None:
        shown.append((read_status(tmp_path) or {}).get("alerts"))

    assert serve(tmp_path, journal, on_wait=look) == pytest.approx(5.0)
    assert all(rows is journal.refused[0] for rows in journal.refused)
    joined = [e for e in journal.log if isinstance(e, EventRow) and e.kind == "learner_joined"]
    assert len(joined) == 1
    assert "database or disk is full" in str(shown[-1])


def test_a_journal_without_room_for_too_long_ends_the_run(tmp_path: Path) -> None:
    journal = FullJournal([], num_refusals=float("inf"))
    with pytest.raises(StorageUnavailable, match=r"full, for 60 s\..*--resume"):
        serve(tmp_path, journal)
    assert len(journal.refused) == STORAGE_GRACE_S / 0.5 + 1
    assert not [entry for entry in journal.log if not isinstance(entry, Row)]


def test_whoever_wants_to_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    journal = FullJournal([], num_refusals=float("inf"))
    with pytest.raises(StorageUnavailable, match="--resume"):
        serve(tmp_path, journal, on_wait=lambda server: server.request_stop("SIGINT"))
    assert len(journal.refused) == 2


def test_no_file_is_synced_again_after_its_fsync_failed(
    tmp_path: Path, make_publishable: MakePublishable, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, files = make_publishable()
    fsync = os.fsync
    for nth in range(1, 100):
        root = tmp_path / str(nth)
        root.mkdir()
        synced: list[tuple[int, str]] = []

        def fail_once(
            descriptor: int, synced: list[tuple[int, str]] = synced, nth: int = nth
        ) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            synced.append((os.fstat(descriptor).st_ino, path))
            if len(synced) == nth:
                raise OSError(errno.EIO, "the disk")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fail_once)
        if nth > 9:
            publish(root, manifest=manifest, files=files)
            assert len(synced) == 9
            return
        with pytest.raises(DiskRefused, match="the disk"):
            publish(root, manifest=manifest, files=files)
        assert len(synced) == nth, "nothing is synced after it"
        assert not [path for path in root.rglob("*") if path.is_file()]
    raise AssertionError("publishing has more steps than that")


def test_the_status_view_warns_also_where_the_live_figures_could_not_be_written(
    tmp_path: Path,
) -> None:
    run = SmallRun(tmp_path)

    def shown() -> list[Any]:
        inspection = Inspection.open(tmp_path)
        try:
            return cast("list[Any]", status_document(inspection, None)["alerts"])
        finally:
            inspection.close()

    with run.journal, RunLock(tmp_path):
        run.put(replace(run.tables.run, state="running"))
        run.note("storage_full", "", reason=REASON)
        (alert,) = shown()
        assert (alert["name"], alert["what"]) == ("storage_full", REASON)
        write_status(tmp_path, {"alerts": [{"name": "storage_full", "what": "more is known"}]})
        assert [alert["what"] for alert in shown()] == ["more is known"]
        write_status(tmp_path, {"alerts": []})
        run.note("storage_recovered", "")
        assert shown() == []
    assert shown() == [], "nobody runs it"


FSYNC_S = 2.0
LEARNER_FSYNC_MS = 300


def test_heartbeats_go_on_while_a_checkpoint_is_synced(
    tmp_path: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()

    class Publishing(StubWork):
        def carry_out(self, assignment: Assignment) -> Finished | Failed:
            publish(tmp_path, manifest=manifest, files=files)
            return StubWork.carry_out(self, assignment)

    def make_work(
        setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> StubWork:
        return Publishing(setup, progress=progress, should_stop=should_stop)

    hub = InMemoryHub(run=RUN, epoch=1)
    controller = ControllerEnd(hub.controller)
    learner = start_inline_learner(setup(), hub, ("player",), make_work=make_work)
    with armed(f"publish.synced=sleep:{LEARNER_FSYNC_MS}") as plan:
        controller.welcome(heartbeat_s=0.02)
        controller.send(assignment(0, number=7))
        began_s = time.monotonic()
        beats = 0
        while plan.trace.count("publish.synced") < 3:
            controller.wait_for(Heartbeat, lambda beat: beat.assignment_id == 7)
            beats += 1
        lasted_s = time.monotonic() - began_s
        controller.wait_for(Finished)
    learner.stop()
    learner.stop()
    learner.join(TIMEOUT_S)
    assert lasted_s >= 2 * LEARNER_FSYNC_MS / 1000
    # The bound is a tenth of the heartbeats of an idle machine.
    assert beats >= lasted_s / 0.2


class SlowJournal(RecordingJournal):
    """Every commit takes as long as a bad disk's fsync."""

    def __init__(self, log: list[object], clock: list[float]) -> None:
        super().__init__(log, full_at="never")
        self.clock = clock

    def commit(self, rows: Sequence[Row]) -> None:
        super().commit(rows)
        self.clock[0] += FSYNC_S


class Over(Exception):
    """Ends a server that would go on."""


def test_nobody_is_given_up_while_the_controllers_disk_is_slow(tmp_path: Path) -> None:
    """Many commits in a row, each far longer than a heartbeat, while five learners work."""
    world = make_world()
    log: list[object] = []
    clock = [0.0]
    learners = [LEARNER, *(LearnerId(f"learner-{number}") for number in range(2, 6))]

    class Busy(ScriptedTransport):
        """Everybody's heartbeats have piled up whenever somebody looks; others come and go."""

        num_heard = 0

        def beat(self, learner: LearnerId) -> Heartbeat:
            held = world.state.crew.learners[learner].held
            return Heartbeat(
                assignment_id=held[0].assignment_id if held else None,
                attempt=held[0].attempt if held else 0,
                progress=self.num_heard,
                agent_steps=1,
                rss_bytes=1,
            )

        def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
            clock[0] += timeout_s + 0.01
            self.num_heard += 1
            beats = [
                (name, self.beat(name)) for name in learners if name in world.state.crew.learners
            ]
            messages = super().receive(timeout_s)
            if not messages:
                guest = LearnerId(f"guest-{self.num_heard}")
                messages = [(guest, world.hello(guest))]
            return [*beats, *messages]

        def send(self, learner: LearnerId, message: FromController) -> bool:
            if isinstance(message, Welcome) and learner not in learners:
                self.script.append((learner, Goodbye(reason="test")))
            return super().send(learner, message)

    def end(status: Mapping[str, object]) -> None:
        if clock[0] > 200.0:
            raise Over

    transport = Busy(log, world.hello(LEARNER))
    transport.script = [(learner, world.hello(learner)) for learner in learners]
    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=SlowJournal(log, clock),
        transport=transport,
        launcher=NoLauncher(),
        on_status=end,
        clock=lambda: clock[0],
    )
    with pytest.raises(Over):
        server.run()
    kinds = [row.kind for row in log if isinstance(row, EventRow)]
    assert kinds.count("learner_left") > 20
    assert "learner_lost" not in kinds
    assert set(learners) <= world.state.crew.learners.keys()
    num_held = sum(len(world.state.crew.learners[learner].held) for learner in learners)
    assert num_held == kinds.count("start_assigned") == 4
