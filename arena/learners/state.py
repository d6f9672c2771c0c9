"""A learner's side of the protocol as a pure state machine: an event comes in, commands come out.

It has no socket, thread, clock or file; times are arguments. Messages may be lost, repeated and
late in both directions, so a message that needs an answer is repeated until the answer comes: Hello
until Welcome, Finished and Failed until Acknowledge. After a long silence of the controller the
learner sends Hello again; the run's next controller answers with its own epoch.

Tests: `tests/arena/learners/test_state.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from arena.types import AssignmentId
from arena.wire.messages import (
    Acknowledge,
    Assignment,
    Evaluate,
    Failed,
    Finished,
    FromController,
    FromLearner,
    Goodbye,
    Heartbeat,
    Hello,
    Refuse,
    Stop,
    Train,
    Welcome,
)

EXIT_DONE = 0

EXIT_REFUSED = 2

EXIT_AGAIN = 75
"""Start another process: the controller gave this one up or refused it for a while (sysexits.h,
EX_TEMPFAIL)."""

# A period of 0 would flood the controller.
MIN_HEARTBEAT_S = 0.01

MAX_QUEUED = 1

MAX_REMEMBERED = 64

Lease = tuple[AssignmentId, int]
"""(assignment_id, attempt)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWork:
    """Tell the worker to end early; it still delivers a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """End the learner without waiting for the worker. It is the last command.

    Attributes:
        code: Exit code of the process.
        reason: Reason for the log.
    """

    code: int
    reason: str


Command = FromLearner | Assignment | StopWork | Exit
"""A message is sent in the current epoch and may be lost; a Heartbeat has the metrics of the time
of sending. An assignment is given to the worker, which is idle. """


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waiting times of a learner.

    Attributes:
        hello_s: Seconds between Hellos: doubles from the first value to the second.
        resend_s: Seconds between repetitions of an unacknowledged result: doubles likewise.
        liveness_s: Silence of the controller after which the learner sends Hello again.
        grace_s: Seconds to finish and be acknowledged after a stop without a time of its own.
    """

    # The first wait is short: over ZeroMQ the first Hello often finds an unconnected socket and is
    # lost.
    hello_s: tuple[float, float] = (0.02, 5.0)
    resend_s: tuple[float, float] = (2.0, 20.0)
    liveness_s: float = 30.0
    grace_s: float = 30.0


@dataclass(slots=True)
class Repeated:
    """Times at which a message is repeated; the waits double."""

    wait_s: float
    last_wait_s: float
    due_s: float

    @classmethod
    def begin(cls, waits_s: tuple[float, float], *, now_s: float) -> Repeated:
        """Record the first sending."""
        return cls(wait_s=waits_s[0], last_wait_s=waits_s[1], due_s=now_s + waits_s[0])

    def again(self, *, now_s: float) -> None:
        """Record a repetition."""
        self.wait_s = min(2.0 * self.wait_s, self.last_wait_s)
        self.due_s = now_s + self.wait_s


def lease_of(message: Train | Evaluate | Finished | Failed | Acknowledge) -> Lease:
    """Return the lease that a message is about."""
    return message.assignment_id, message.attempt


@dataclass(slots=True)
class LearnerState:
    """The state of a learner's conversation with the controller.

    Its methods take an event and its time on this process's monotonic clock, and return the
    commands to carry out, in order.

    Attributes:
        hello: Description of the learner.
        patience: Waiting times.
        epoch: Epoch of the controller that welcomed it; 0 before.
        heartbeat_s: Seconds between heartbeats, as the controller wants them.
        running: Assignment that the worker carries out.
        abandoned: Whether the lease of ``running`` belongs to another learner now.
        queued: Next assignment: at most one.
        results: Results that the controller has not acknowledged yet, by lease.
        stop_reason: Reason why it is ending; None while it is not.
        is_over: Whether Exit was returned; no command follows.
    """

    hello: Hello
    patience: Patience = field(default_factory=Patience)
    epoch: int = 0
    heartbeat_s: float = 1.0
    running: Assignment | None = None
    abandoned: bool = False
    queued: deque[Assignment] = field(default_factory=deque)
    results: dict[Lease, Finished | Failed] = field(default_factory=dict)
    stop_reason: str | None = None
    is_over: bool = False
    _resends: dict[Lease, Repeated] = field(default_factory=dict)
    _seen: deque[Lease] = field(default_factory=lambda: deque(maxlen=MAX_REMEMBERED))
    _greeting: Repeated | None = None
    _heard_s: float = 0.0
    _heartbeat_due_s: float = 0.0
    _stop_at_s: float = 0.0
    _stopped_locally: Literal[0, 1] = 0

    def receive(self, message: FromController, *, epoch: int, now_s: float) -> list[Command]:
        """Handle a message of a controller, whose epoch is in the header."""
        if self.is_over:
            return []
        return self._receive(message, epoch, now_s) + self._end_if_stopped(now_s)

    def finish(self, result: Finished | Failed, *, now_s: float) -> list[Command]:
        """Take the result of the worker, which has finished its assignment."""
        return [] if self.is_over else self._finish(result, now_s) + self._end_if_stopped(now_s)

    def stop(self, reason: str, *, now_s: float) -> list[Command]:
        """Begin to end on this side's request: a signal, a debugger."""
        return (
            [] if self.is_over else self._stop_locally(reason, now_s) + self._end_if_stopped(now_s)
        )

    def tick(self, *, now_s: float) -> list[Command]:
        """Handle the passing of time."""
        return [] if self.is_over else self._tick(now_s) + self._end_if_stopped(now_s)

    def due_s(self) -> float:
        """Return the time of the next tick that is needed if no event comes."""
        times_s = [repeated.due_s for repeated in self._resends.values()]
        if self._greeting is not None:
            times_s.append(self._greeting.due_s)
        if self.epoch:
            times_s += [self._heartbeat_due_s, self._heard_s + self.patience.liveness_s]
        if self.stop_reason is not None:
            times_s.append(self._stop_at_s)
        return min(times_s, default=0.0)

    def greet(self, *, now_s: float) -> list[Command]:
        """Send Hello: at first, once the worker is ready, and to a silent controller."""
        self._heard_s = now_s
        self._greeting = Repeated.begin(self.patience.hello_s, now_s=now_s)
        return [self.hello]

    def _receive(self, message: FromController, epoch: int, now_s: float) -> list[Command]:
        if isinstance(message, Refuse):
            # A refusal with a lower epoch comes from an earlier controller, and this learner
            # already has a later one.
            return [] if 0 < epoch < self.epoch else self._refused(message)
        if isinstance(message, Welcome):
            return self._welcomed(message, epoch, now_s)
        # Assignments and Acknowledges of another epoch refer to leases that are no longer valid.
        if epoch != self.epoch or not self.epoch:
            return []
        self._heard_s = now_s
        match message:
            case Train() | Evaluate():
                return self._take(message, now_s)
            case Acknowledge():
                # The default avoids an error: a result that was sent twice is acknowledged twice.
                self.results.pop(lease_of(message), None)
                self._resends.pop(lease_of(message), None)
                return []
            case Stop():
                return self._stop("the controller said so", now_s=now_s, grace_s=message.grace_s)

    def _refused(self, refuse: Refuse) -> list[Command]:
        return self._exit(EXIT_AGAIN if refuse.again else EXIT_REFUSED, refuse.reason)

    def _welcomed(self, welcome: Welcome, epoch: int, now_s: float) -> list[Command]:
        # This is a late answer to an earlier Hello.
        if epoch < self.epoch:
            return []
        commands: list[Command] = []
        if epoch > self.epoch and self.epoch:
            # The same epoch means an answer to a repeated Hello, so leases stay valid.
            commands = self._forget()
        self._heard_s = now_s
        self._greeting = None
        self.heartbeat_s = max(welcome.heartbeat_s, MIN_HEARTBEAT_S)
        self.epoch = epoch
        return commands + self._heartbeat(now_s)

    def _forget(self) -> list[Command]:
        """Drop assignments of another epoch's controller: its successor gives them out again."""
        self.queued.clear()
        self.results.clear()
        self._resends.clear()
        self._seen.clear()
        return self._abandon()

    def _abandon(self) -> list[Command]:
        if self.running is None or self.abandoned:
            return []
        # The assignment stays `running` until its result, because the worker has one thread.
        self.abandoned = True
        return [StopWork()]

    def _take(self, assignment: Assignment, now_s: float) -> list[Command]:
        lease = lease_of(assignment)
        # A stopping learner accepts no assignment; its Goodbye returns what it was sent.
        if self.stop_reason is not None or self._was_seen(lease):
            return []
        self._seen.append(lease)
        commands = self._drop_older_attempts(assignment)
        if len(self.queued) >= MAX_QUEUED:
            # The controller counts the leases it gives out, so it has given up the queued one. If
            # it has not, the Failed makes it give that assignment out again.
            dropped = self.queued.popleft()
            commands += self._answer(_no_room(dropped), now_s)
        self.queued.append(assignment)
        return commands + self._start_next(now_s)

    def _was_seen(self, lease: Lease) -> bool:
        # Attempts older than a known one are over, too.
        return any(seen[0] == lease[0] and seen[1] >= lease[1] for seen in self._seen)

    def _drop_older_attempts(self, assignment: Assignment) -> list[Command]:
        number = assignment.assignment_id
        self.queued = deque(other for other in self.queued if other.assignment_id != number)
        # The list is a copy, because the loop changes the dict.
        for lease in [lease for lease in self.results if lease[0] == number]:
            del self.results[lease], self._resends[lease]
        if self.running is not None and self.running.assignment_id == number:
            return self._abandon()
        return []

    def _start_next(self, now_s: float) -> list[Command]:
        if self.running is not None or not self.queued or self.stop_reason is not None:
            return []
        self.running = self.queued.popleft()
        self.abandoned = False
        # The controller's deadline runs from the first heartbeat, so one is sent at once.
        return [self.running, *self._heartbeat(now_s)]

    def _finish(self, result: Finished | Failed, now_s: float) -> list[Command]:
        commands: list[Command] = []
        was_abandoned, self.running, self.abandoned = self.abandoned, None, False
        # The controller would refuse the result of an abandoned lease.
        if not was_abandoned:
            commands = self._answer(result, now_s)
        return commands + self._start_next(now_s)

    def _answer(self, result: Finished | Failed, now_s: float) -> list[Command]:
        self.results[lease_of(result)] = result
        self._resends[lease_of(result)] = Repeated.begin(self.patience.resend_s, now_s=now_s)
        return [result]

    def _heartbeat(self, now_s: float) -> list[Command]:
        self._heartbeat_due_s = now_s + self.heartbeat_s
        # A worker that runs an abandoned lease counts as idle for the controller.
        lease = (None, 0) if self.running is None or self.abandoned else lease_of(self.running)
        return [
            Heartbeat(
                assignment_id=lease[0], attempt=lease[1], progress=0, agent_steps=0, rss_bytes=0
            )
        ]

    def _tick(self, now_s: float) -> list[Command]:
        commands: list[Command] = []
        # Hello is repeated only after the first Welcome, and not while another Hello is being
        # repeated.
        if self._greeting is None and self.epoch:
            if now_s >= self._heard_s + self.patience.liveness_s:
                commands += self.greet(now_s=now_s)
        elif self._greeting is not None and now_s >= self._greeting.due_s:
            self._greeting.again(now_s=now_s)
            commands.append(self.hello)
        for lease, repeated in self._resends.items():
            if now_s >= repeated.due_s:
                repeated.again(now_s=now_s)
                commands.append(self.results[lease])
        if self.epoch and now_s >= self._heartbeat_due_s:
            commands += self._heartbeat(now_s)
        return commands

    def _stop_locally(self, reason: str, now_s: float) -> list[Command]:
        # This is a second Ctrl-C: the user wants the process to end now.
        if self._stopped_locally:
            return self._leave(f"{reason}, twice")
        self._stopped_locally = 1
        return self._stop(reason, now_s=now_s, grace_s=self.patience.grace_s)

    def _stop(self, reason: str, *, now_s: float, grace_s: float) -> list[Command]:
        if self.stop_reason is not None:
            # A signal and the controller may both request a stop: the earlier end counts.
            self._stop_at_s = min(self._stop_at_s, now_s + grace_s)
            return []
        self.stop_reason = reason
        self._stop_at_s = now_s + grace_s
        self.queued.clear()  # Goodbye returns the queued assignments.
        # The result is still delivered; `_end_if_stopped` waits for its Acknowledge.
        return [] if self.running is None else [StopWork()]

    def _end_if_stopped(self, now_s: float) -> list[Command]:
        if self.stop_reason is None or self.is_over:
            return []
        if self.running is None and not self.results:
            return self._leave(self.stop_reason)
        if now_s >= self._stop_at_s:
            return self._leave(f"{self.stop_reason}; the time to finish is over")
        return []

    def _leave(self, reason: str) -> list[Command]:
        # A controller knows the learner only after a Welcome.
        farewell: list[Command] = [Goodbye(reason=reason)] if self.epoch else []
        return farewell + self._exit(EXIT_DONE, reason)

    def _exit(self, code: int, reason: str) -> list[Command]:
        self.is_over = True
        return [Exit(code=code, reason=reason)]


def _no_room(dropped: Assignment) -> Failed:
    return Failed(
        assignment_id=dropped.assignment_id,
        attempt=dropped.attempt,
        kind="stopped",
        reason="another assignment took its place in the learner's queue",
    )
