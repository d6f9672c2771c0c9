"""Events and commands of a learner's state machine. Plain data.

Tests: `tests/arena/learners/test_state.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from arena.types import AssignmentId
from arena.wire.messages import Assignment, Failed, Finished, FromController, FromLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The worker is ready. First event of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The controller said something.

    Attributes:
        message: Message of the controller.
        epoch: Epoch of the controller, from the header.
    """

    message: FromController
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """The worker has finished its assignment."""

    result: Finished | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """This side wants the learner to end: a signal, a debugger."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Event = Started | Received | WorkDone | StopRequested | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a message of the current epoch; it may be lost."""

    message: FromLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    """Send a Heartbeat with current figures.

    Attributes:
        assignment_id: Assignment that runs, or None.
        attempt: Attempt at it; 0 when idle.
    """

    assignment_id: AssignmentId | None
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWork:
    """Let the worker carry out an assignment; it is idle."""

    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWork:
    """Tell the worker to come to an end early; it is still to deliver a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """End the learner, without waiting for the worker. Last command.

    Attributes:
        code: Exit code of the process.
        reason: Reason for the log.
    """

    code: int
    reason: str


Command = Send | SendHeartbeat | StartWork | StopWork | Exit
