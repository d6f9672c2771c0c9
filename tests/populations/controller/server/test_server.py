"""The I/O shell: nothing is acknowledged or sent before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import checkpoint_key
from arena.errors import WireError
from arena.types import AssignmentId, CheckpointRef, Digest, LearnerId
from arena.wire.messages import (
    Acknowledge,
    Finished,
    FromController,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Published,
    Train,
    Welcome,
)
from arena.wire.session import BadMessage
from populations.controller.machine import handle
from populations.controller.server.server import Server
from populations.controller.state.events import Event, LearnerJoined, Now, SendMessage
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.errors import StorageError
from populations.records.aggregates import Row
from populations.records.rows import ArchiveRow, AssignmentRow, EventRow
from populations.storage.journal import Journal
from tests.populations.controller.simulated import World, make_world
from tests.populations.rows import make_finished
from tests.support import Clock

LEARNER = LearnerId("learner-1")


class RecordingJournal(Journal):
    """Commits to a list, until it is told that the disk is full."""

    def __init__(self, log: list[object], *, full_at: str) -> None:
        self.log = log
        self.full_at = full_at

    def commit(self, rows: Sequence[Row]) -> None:
        if any(isinstance(row, EventRow) and row.kind == self.full_at for row in rows):
            raise StorageError("the disk is full")
        self.log.extend(rows)

    def require_place(self) -> None:
        return

    def backup(self, path: Path) -> int:
        del path
        return 0

    def archives(self) -> list[ArchiveRow]:
        return []

    def remove_archived(self, *, limit: int) -> int:
        del limit
        return 0

    def shrink(self, *, pages: int) -> bool:
        del pages
        return False


class ScriptedTransport:
    """Says Hello once, and records what it is asked to send."""

    endpoint = "inproc://test"

    def __init__(self, log: list[object], hello: Hello) -> None:
        self.log = log
        self.script: list[tuple[LearnerId, Message]] = [(LEARNER, hello)]

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        del timeout_s
        arrived, self.script = self.script, []
        return arrived

    def send(self, learner: LearnerId, message: FromController) -> bool:
        del learner
        self.log.append(message)
        return True

    def take_bad_messages(self) -> list[BadMessage]:
        return []

    @property
    def num_bad(self) -> Mapping[str, int]:
        return {}

    def disconnect(self, learner: LearnerId) -> None:
        del learner

    def close(self, *, linger_s: float) -> None:
        del linger_s


class NoLauncher:
    """Starts nothing: the learner of these tests is a script."""

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        del slot, populations

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        del slot

    def slot_of(self, hello: Hello) -> int | None:
        del hello
        return None

    def waiting(self) -> Collection[int]:
        return ()

    def exited(self) -> list[tuple[int, int | None]]:
        return []

    def close(self) -> None:
        return


def serve_until_full(tmp_path: Path, *, full_at: str) -> tuple[World, list[object]]:
    """Run a server until its journal refuses; what it committed and sent, in order."""
    world = make_world()
    log: list[object] = []
    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=RecordingJournal(log, full_at=full_at),
        transport=ScriptedTransport(log, world.hello(LEARNER)),
        launcher=NoLauncher(),
    )
    with pytest.raises(StorageError, match="the disk is full"):
        server.run()
    return world, log


def test_a_commit_that_fails_sends_nothing_of_its_event(tmp_path: Path) -> None:
    _, log = serve_until_full(tmp_path, full_at="learner_joined")
    assert not [entry for entry in log if isinstance(entry, Welcome | Train | Acknowledge)]


class Full(Exception):
    """Ends a server that would go on."""


def serve_until(
    end: Callable[[Mapping[str, object]], None],
    world: World,
    log: list[object],
    run_dir: Path,
    *,
    transport: ScriptedTransport,
    launcher: NoLauncher | None = None,
) -> None:
    """Run a server until ``end``, which is told each status, raises Full."""
    server = Server(
        run_dir=run_dir,
        state=world.state,
        journal=RecordingJournal(log, full_at="never"),
        transport=transport,
        launcher=launcher or NoLauncher(),
        on_status=end,
    )
    with pytest.raises(Full):
        server.run()


def test_an_assignment_is_in_the_journal_before_it_is_sent(tmp_path: Path) -> None:
    world = make_world()
    log: list[object] = []
    transport = ScriptedTransport(log, world.hello(LEARNER))

    def end(status: Mapping[str, object]) -> None:
        if any(isinstance(entry, Train) for entry in log):
            raise Full(status["run"])

    serve_until(end, world, log, tmp_path, transport=transport)
    sent = [entry for entry in log if isinstance(entry, Train)]
    assert len(sent) == 2  # one running, one queued
    for message in sent:
        committed = [
            index
            for index, entry in enumerate(log)
            if isinstance(entry, AssignmentRow)
            and (entry.assignment_id, entry.attempt) == (message.assignment_id, message.attempt)
        ]
        assert committed
        assert min(committed) < log.index(message)


class OneSlot(NoLauncher):
    """Has the learner of the script in its slot, whose process ends when the script says."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, int | None]] = []

    def slot_of(self, hello: Hello) -> int | None:
        del hello
        return 0

    def exited(self) -> list[tuple[int, int | None]]:
        ended, self.ended = self.ended, []
        return ended


def test_who_takes_its_leave_and_ends_at_once_is_not_lost(tmp_path: Path) -> None:
    world = make_world()
    log: list[object] = []
    launcher = OneSlot()

    class Leaver(ScriptedTransport):
        def send(self, learner: LearnerId, message: FromController) -> bool:
            if isinstance(message, Welcome):
                self.script.append((LEARNER, Goodbye(reason="stopped")))
            return super().send(learner, message)

        def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
            arrived = super().receive(timeout_s)
            if any(isinstance(message, Goodbye) for _, message in arrived):
                launcher.ended = [(0, 0)]
            return arrived

    def gone() -> list[str]:
        kinds = ("learner_left", "learner_lost")
        return [row.kind for row in log if isinstance(row, EventRow) and row.kind in kinds]

    def end(status: Mapping[str, object]) -> None:
        if gone():
            raise Full(status["run"])

    transport = Leaver(log, world.hello(LEARNER))
    serve_until(end, world, log, tmp_path, transport=transport, launcher=launcher)
    assert gone() == ["learner_left"]


def test_a_checkpoint_that_is_not_there_fails_its_assignment(tmp_path: Path) -> None:
    world = make_world()
    log: list[object] = []

    class Liar(ScriptedTransport):
        """Says at once that it has published what it was asked for."""

        def send(self, learner: LearnerId, message: FromController) -> bool:
            if isinstance(message, Train):
                (trainee,) = message.trainees
                digest = Digest("0" * 64)
                key = checkpoint_key(trainee.policy, agent_steps=0, digest=digest)
                finished = make_finished(
                    message,
                    checkpoints=(
                        Published(
                            policy=trainee.policy, checkpoint=CheckpointRef(digest=digest, key=key)
                        ),
                    ),
                )
                self.script.append((learner, finished))
            return super().send(learner, message)

    def end(status: Mapping[str, object]) -> None:
        kinds = [row.kind for row in log if isinstance(row, EventRow)]
        if "assignment_failed" in kinds:
            raise Full(status["run"])

    serve_until(end, world, log, tmp_path, transport=Liar(log, world.hello(LEARNER)))
    failed = [e for e in log if isinstance(e, EventRow) and e.kind == "assignment_failed"]
    assert "does not verify" in str(failed[0].data["reason"])
    assert world.state.tables.run.assignments_finished == 0
    assert not world.state.tables.checkpoints


def test_who_says_again_and_again_that_it_has_ended_what_it_was_not_given_queues_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    log: list[object] = []
    said = [
        Finished(
            assignment_id=AssignmentId(1),
            attempt=attempt,
            checkpoints=(),
            tallies=(),
            metrics={},
            duration_s=1.0,
        )
        for attempt in range(2, 102)
    ]

    class Liar(ScriptedTransport):
        """Says a hundred things at once, and again when one of them is answered."""

        def send(self, learner: LearnerId, message: FromController) -> bool:
            if isinstance(message, Welcome | Acknowledge):
                self.script += [(learner, finished) for finished in said]
            return super().send(learner, message)

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"{arguments} is read back")

    monkeypatch.setattr("populations.controller.server.server.verify", refuse)

    def end(status: Mapping[str, object]) -> None:
        if sum(isinstance(entry, Acknowledge) for entry in log) >= 3:
            raise Full(status["run"])

    serve_until(end, world, log, tmp_path, transport=Liar(log, world.hello(LEARNER)))
    answered = {entry.attempt for entry in log if isinstance(entry, Acknowledge)}
    assert answered == {2}
    assert world.state.tables.run.assignments_finished == 0


def _beat(progress: int) -> Heartbeat:
    return Heartbeat(assignment_id=None, attempt=0, progress=progress, agent_steps=0, rss_bytes=0)


@pytest.mark.slow
def test_heartbeats_do_not_wait_until_many_who_join_are_dealt_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    log: list[object] = []
    clock = Clock()
    crowd = [LearnerId(f"learner-{number}") for number in range(2, 102)]

    class Crowd(ScriptedTransport):
        """All say Hello at once; heartbeats of those who have joined are behind that."""

        def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
            del timeout_s
            clock.now_s += 0.01
            portion, self.script = self.script[:25], self.script[25:]
            learners = world.state.crew.learners.items()
            return portion or [(name, _beat(learner.progress + 1)) for name, learner in learners]

    def slow_handle(state: ControllerState, event: Event, now: Now) -> Transaction:
        if isinstance(event, LearnerJoined):
            clock.now_s += 0.5
        return handle(state, event, now)

    monkeypatch.setattr("populations.controller.server.server.handle", slow_handle)
    transport = Crowd(log, world.hello(LEARNER))
    transport.script += [(learner, world.hello(learner)) for learner in crowd]

    def end(status: Mapping[str, object]) -> None:
        if len(world.state.crew.learners) == len(crowd) + 1:
            raise Full(status["run"])

    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=RecordingJournal(log, full_at="never"),
        transport=transport,
        launcher=NoLauncher(),
        on_status=end,
        clock=clock,
    )
    with pytest.raises(Full):
        server.run()
    assert clock.now_s >= 50.0
    assert not [entry for entry in log if isinstance(entry, EventRow) and "lost" in entry.kind]


def test_an_assignment_that_cannot_be_sent_is_not_journaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    log: list[object] = []

    def unsendable(state: ControllerState, event: Event, now: Now) -> Transaction:
        tx = handle(state, event, now)
        tx.commands = [
            replace(command, message=replace(command.message, seed=2**64))
            if isinstance(command, SendMessage) and isinstance(command.message, Train)
            else command
            for command in tx.commands
        ]
        return tx

    monkeypatch.setattr("populations.controller.server.server.handle", unsendable)
    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=RecordingJournal(log, full_at="never"),
        transport=ScriptedTransport(log, world.hello(LEARNER)),
        launcher=NoLauncher(),
    )
    with pytest.raises(WireError, match="Train cannot be sent"):
        server.run()
    assert not [entry for entry in log if isinstance(entry, AssignmentRow | Train | Welcome)]
