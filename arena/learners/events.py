"""What a learner's state machine is told, and what it wants done. Plain data."""

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
        message: What.
        epoch: The controller's, from the header.
    """

    message: FromController
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """The worker is done with what it was given."""

    result: Finished | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """Somebody on this side wants the learner to end: a signal, a debugger."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Event = Started | Received | WorkDone | StopRequested | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a message of the current epoch; whether it arrives, nobody knows."""

    message: FromLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    """Send a Heartbeat with the figures of now.

    Attributes:
        assignment_id: What runs, or None.
        attempt: Of it; 0 when idle.
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
    """End the learner; what the worker does no longer matters. Last command.

    Attributes:
        code: Of the process.
        reason: For the log.
    """

    code: int
    reason: str


Command = Send | SendHeartbeat | StartWork | StopWork | Exit
