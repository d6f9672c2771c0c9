"""A learner whose work does what an assignment's seed says, and the controller's end of its wire.

Also a program that tests start.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TypeVar

from msgspec.structs import replace

from arena.config import EnvironmentConfig, LearnerSetup
from arena.environment_spec import EnvironmentSpec
from arena.learners import process
from arena.learners.loop import Progress
from arena.learners.spawn import spawn_learner
from arena.processes.parent import Child
from arena.types import AssignmentId, LearnerId
from arena.wire.messages import (
    Acknowledge,
    Assignment,
    Evaluate,
    Failed,
    Finished,
    FromController,
    Hello,
    Message,
    Welcome,
)
from arena.wire.transport import ControllerTransport
from tests.arena.wire.examples import RUN
from tests.support import wait_until

FINISH, UNTIL_STOPPED, RAISE, EXIT, HANG, NON_FINITE = range(6)
TIMEOUT_S = 30.0
NOBODY = LearnerId("nobody")
M = TypeVar("M", bound=Message)

RELEASE = threading.Event()
"""Lets work that hangs in this process go on."""


def setup() -> LearnerSetup:
    spec = EnvironmentSpec(
        id="none", kwargs={}, api="aec", agents=("a", "b"), agent_specs={}, versions={}
    )
    return LearnerSetup(
        run=RUN,
        root="/nowhere",
        launch_directory="/nowhere",
        environment=EnvironmentConfig(id="none"),
        spec=spec,
        sides={"a": ("a",), "b": ("b",)},
        seats=(),
        populations={},
        device="cpu",
    )


def assignment(what: int, *, number: int = 1, attempt: int = 1) -> Evaluate:
    return Evaluate(
        assignment_id=AssignmentId(number),
        attempt=attempt,
        pairings=(),
        seed=what,
    )


@dataclass
class ControllerEnd:
    """The controller's end, in the hands of a test.

    Attributes:
        transport: Its transport.
        learner: Who has spoken last.
        heard: What was said and is not looked at yet.
        timeout_s: How long a message is waited for.
        check: Fails where nothing can come any more.
    """

    transport: ControllerTransport
    learner: LearnerId = NOBODY
    heard: list[tuple[LearnerId, Message]] = field(default_factory=list)
    timeout_s: float = TIMEOUT_S
    check: Callable[[], None] = lambda: None

    def wait_for(
        self, kind: type[M] | UnionType, condition: Callable[[M], bool] | None = None
    ) -> M:
        """The next message of a kind, for which a condition holds; others before it are dropped."""
        found: list[M] = []

        def is_there() -> bool:
            self.check()
            self.heard += self.transport.receive(0.02)
            while self.heard and not found:
                self.learner, message = self.heard.pop(0)
                if isinstance(message, kind) and (condition is None or condition(message)):
                    found.append(message)
            return bool(found)

        wait_until(is_there, timeout_s=self.timeout_s)
        return found[0]

    def send(self, message: FromController) -> None:
        assert self.transport.send(self.learner, message)

    def welcome(self, *, heartbeat_s: float = 0.02) -> Hello:
        hello = self.wait_for(Hello)
        self.send(Welcome(heartbeat_s=heartbeat_s))
        return hello

    def acknowledge(self, result: Finished | Failed) -> None:
        self.send(Acknowledge(assignment_id=result.assignment_id, attempt=result.attempt))

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        """Give an assignment out, and return what comes of it."""
        self.send(assignment)
        answer: Finished | Failed = self.wait_for(Finished | Failed)
        self.acknowledge(answer)
        return answer


class StubWork:
    """Stands for `arena.learners.work.worker.Worker`."""

    def __init__(
        self, setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> None:
        self.device = setup.device
        self.progress = progress
        self.should_stop = should_stop
        self.is_closed = False

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        self.progress.advance(agent_steps=7)
        finished = Finished(
            assignment_id=assignment.assignment_id,
            attempt=assignment.attempt,
            checkpoints=(),
            tallies=(),
            metrics={"stub/threads": float(os.environ.get("OMP_NUM_THREADS", "0"))},
            duration_s=0.0,
        )
        match assignment.seed:
            case 1:  # UNTIL_STOPPED
                while not self.should_stop():
                    self.progress.advance()
                    RELEASE.wait(0.001)
            case 2:  # RAISE
                raise RuntimeError("the environment is on fire")
            case 3:  # EXIT
                sys.exit(5)
            case 4:  # HANG
                RELEASE.wait()
            case 5:  # NON_FINITE
                return replace(finished, metrics={"stub/loss": math.nan})
        return finished

    def close(self) -> None:
        self.is_closed = True


def spawn_stub(
    directory: Path,
    endpoint: str,
    *,
    populations: tuple[str, ...] = (),
    device: str | None = None,
) -> Child:
    """Start this file as a learner's process."""
    setup_path = directory / "setup.json"
    setup_path.write_text(setup().model_dump_json())
    return spawn_learner(
        setup_path,
        endpoint,
        populations=populations,
        device=device,
        log_path=directory / "logs" / "learner.log",
        module="tests.arena.learners.stub",
    )


if __name__ == "__main__":
    sys.exit(process.main(make_work=StubWork))
