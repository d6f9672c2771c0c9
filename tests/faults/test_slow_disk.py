"""A disk that takes its time: heartbeats go on, and nobody is given up because of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from arena.failpoints import armed
from arena.learners.inline import start_inline_learner
from arena.learners.loop import Progress
from arena.types import LearnerId
from arena.wire.in_memory import InMemoryHub
from arena.wire.messages import (
    Assignment,
    Failed,
    Finished,
    FromController,
    Goodbye,
    Heartbeat,
    Message,
    Welcome,
)
from populations.controller.server.server import Server
from populations.records.aggregates import Row
from populations.records.rows import EventRow
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
from tests.populations.controller.simulated import make_world

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
    # Ten times fewer than there would be on a machine with nothing else to do.
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
